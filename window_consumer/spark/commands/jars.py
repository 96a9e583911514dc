"""``window-consumer pipeline jars``: downloads Spark's connectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import click

from window_consumer.cli.options import json_option
from window_consumer.cli.output import OK, print_result
from window_consumer.model.errors import WindowConsumerError
from window_consumer.spark import class_archive, jars


@click.command("jars")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIRECTORY",
    help="Where to put them. [default: $WINDOW_CONSUMER_JARS, or the user's cache]",
)
@json_option
def jars_command(*, directory: Path | None, as_json: bool) -> int:
    """Download the jars that Spark needs to read Kafka and to write tables, with Maven.

    Each is checked against a SHA-256 that comes with the package. Existing jars stay unchanged. An
    archive of Java classes is created beside them, which saves each command seconds.
    """
    fetch_all(directory or jars.default_directory(), jars.locked(), as_json=as_json)
    return OK


def fetch_all(directory: Path, wanted: Sequence[jars.Jar], *, as_json: bool = False) -> None:
    """Download missing jars, create the class archive, and print what was done."""
    downloaded = jars.fetch(directory, wanted)
    lines = [f"{jar.name}  {jar.sha256}" for jar in downloaded]
    there = len(wanted) - len(downloaded)
    lines.append(f"{directory}: {len(downloaded)} downloaded, {there} already there")
    names = [jar.name for jar in downloaded]
    fields = {"directory": str(directory), "downloaded": names, "already_there": there}
    print_result(fields, "\n".join(lines), as_json=as_json)
    _archive(directory, wanted, partial(click.echo, err=as_json), anew=bool(downloaded))


def _archive(
    directory: Path, wanted: Sequence[jars.Jar], say: Callable[[str], None], *, anew: bool
) -> None:
    """Create the class archive if it is missing; a failure only costs seconds at each start."""
    if find_spec("pyspark") is None:
        say("no class archive yet: pip install 'window-consumer[spark]', then run this again")
        return
    ready = jars.ready(directory, wanted)
    try:
        if class_archive.made(ready) and not anew:
            say("the class archive is already there")
            return
        say("creating a class archive, with which Spark starts faster: takes a minute")
        made = class_archive.make(ready, anew=anew)
    except (WindowConsumerError, OSError) as error:
        click.echo(f"no class archive, Spark starts without it: {error}", err=True)
        return
    say(f"{made.name}: {made.stat().st_size / 1e6:,.0f} MB")
