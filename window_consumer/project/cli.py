"""``window-consumer init`` and ``new``: a project that runs with one command, and more handlers."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from window_consumer.cli import options
from window_consumer.cli.options import json_option
from window_consumer.cli.output import OK, print_json, print_result
from window_consumer.config import json_schema
from window_consumer.model.errors import UsageError
from window_consumer.plan.feature_list import FeatureList
from window_consumer.project.new_handler import HandlerForm, add_handler
from window_consumer.project.new_project import create_project


@click.command("init")
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
@json_option
@options.features
def init_command(*, directory: Path, as_json: bool, features: FeatureList) -> int:
    """Create a project in DIRECTORY, by default this one; it must be empty.

    It has a handler with a test, workers.yaml, a Dockerfile, a compose file with Kafka, and a
    README with the next steps.
    """
    try:
        written = create_project(directory, json_schema(features.sections))
    except OSError as error:
        raise UsageError(f"cannot write the project: {error}") from error
    if as_json:
        print_json({"written": [str(directory / path) for path in written]})
        return OK
    for path in written:
        click.echo(f"wrote {directory / path}")
    click.echo("\nNext:\n")
    if directory != Path():
        click.echo(f"  cd {shlex.quote(str(directory))}")
    click.echo("  window-consumer dev handlers:app   # with a broker, a page, and reload")
    click.echo("  python -m pytest                   # its test, without Kafka")
    return OK


@click.group("new")
def new_group() -> None:
    """Add to the project in the current directory."""


@new_group.command("handler")
@click.argument("name")
@click.option("--topic", metavar="TOPIC", help="The topic to read; by default the one of its name.")
@click.option("--async", "is_async", is_flag=True, help="A coroutine.")
@click.option("--batch", "is_batch", is_flag=True, help="A function of a list of records.")
@json_option
def handler_command(
    *, name: str, topic: str | None, is_async: bool, is_batch: bool, as_json: bool
) -> int:
    """Add the handler NAME, its worker and its test.

    The handler goes to the end of the module that pytest's configuration names
    (window_consumer_app), its worker to the end of `workers`; comments stay.
    """
    if is_async and is_batch:
        raise UsageError("choose --async or --batch")
    form = (
        HandlerForm.COROUTINE if is_async else HandlerForm.BATCH if is_batch else HandlerForm.RECORD
    )
    topic = topic or name
    try:
        written = add_handler(Path(), name, topic, form)
    except OSError as error:
        raise UsageError(f"cannot add the handler: {error}") from error
    lines = [f"wrote {path}" for path in written]
    lines += ["", f"The topic {topic} must exist before the worker starts: `dev` creates it."]
    fields = {"written": [str(path) for path in written], "topic": topic}
    print_result(fields, "\n".join(lines), as_json=as_json)
    return OK
