"""``window-consumer init``: a project that runs with one command."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from window_consumer.cli.output import OK
from window_consumer.model.errors import UsageError
from window_consumer.project.new_project import create_project


@click.command("init")
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
def init_command(*, directory: Path) -> int:
    """Create a project in DIRECTORY, by default this one; it must be empty.

    It has a handler with a test, workers.yaml, a Dockerfile, a compose file with Kafka, and a
    README with the next steps.
    """
    try:
        written = create_project(directory)
    except OSError as error:
        raise UsageError(f"cannot write the project: {error}") from error
    for path in written:
        click.echo(f"wrote {directory / path}")
    click.echo("\nNext:\n")
    if directory != Path():
        click.echo(f"  cd {shlex.quote(str(directory))}")
    click.echo("  window-consumer run handlers:app --embedded   # with a broker in the process")
    click.echo("  python -m pytest                              # its test, without Kafka")
    return OK
