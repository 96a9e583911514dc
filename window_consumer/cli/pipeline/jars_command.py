"""``window-consumer pipeline jars``: brings Spark's connectors."""

from __future__ import annotations

from pathlib import Path

import click

from window_consumer.cli.errors import OK
from window_consumer.pipeline import jars


@click.command("jars")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIRECTORY",
    help="Where to put them. [default: $WINDOW_CONSUMER_JARS, or the user's cache]",
)
def jars_command(*, directory: Path | None) -> int:
    """Bring the jars that Spark needs to read Kafka and to write tables, with Maven.

    Each is checked against a SHA-256 that comes with the package. What is there already is left
    as it is.
    """
    place = directory or jars.default_directory()
    brought = jars.fetch(place)
    for jar in brought:
        click.echo(f"{jar.name}  {jar.sha256}")
    there = len(jars.locked()) - len(brought)
    click.echo(f"{place}: {len(brought)} brought, {there} were there")
    return OK
