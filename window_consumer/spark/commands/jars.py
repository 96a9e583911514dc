"""``window-consumer pipeline jars``: downloads Spark's connectors."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click

from window_consumer.cli.output import OK
from window_consumer.model.errors import WindowConsumerError
from window_consumer.spark import (
    class_archive,
    jars,
)


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
    as it is. Beside them an archive of Java's classes is made, which spares each command seconds.
    """
    fetch_all(directory or jars.default_directory(), jars.locked())
    return OK


def fetch_all(directory: Path, wanted: Sequence[jars.Jar]) -> None:
    """Download what is missing, make the archive of classes, and print what was done."""
    brought = jars.fetch(directory, wanted)
    for jar in brought:
        click.echo(f"{jar.name}  {jar.sha256}")
    there = len(wanted) - len(brought)
    click.echo(f"{directory}: {len(brought)} brought, {there} were there")
    _archive(directory, wanted, anew=bool(brought))


def _archive(directory: Path, wanted: Sequence[jars.Jar], *, anew: bool) -> None:
    """Make the archive of classes if it is missing; a failure only costs seconds at each start."""
    if find_spec("pyspark") is None:
        click.echo("no archive of classes yet: pip install 'window-consumer[spark]', and again")
        return
    ready = jars.ready(directory, wanted)
    try:
        if class_archive.made(ready) and not anew:
            click.echo("the archive of classes was there")
            return
        click.echo("making an archive of classes, from which Spark starts faster: a minute")
        made = class_archive.make(ready, anew=anew)
    except (WindowConsumerError, OSError) as error:
        click.echo(f"no archive of classes, Spark starts without it: {error}", err=True)
        return
    click.echo(f"{made.name}: {made.stat().st_size / 1e6:,.0f} MB")
