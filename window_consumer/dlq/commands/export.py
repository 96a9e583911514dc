"""``window-consumer dlq export``: dead letters as they are, into a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from window_consumer.cli.output import OK
from window_consumer.dlq.commands.options import (
    WHERE,
    open_dead_letters,
    topic_options,
)
from window_consumer.dlq.files import (
    write_lines,
    write_parquet,
)
from window_consumer.dlq.reader import DeadLetterTopics
from window_consumer.dlq.source import DeadLetterSource
from window_consumer.model.conditions.expressions import Expression
from window_consumer.model.errors import UsageError


@click.command("export")
@topic_options
@WHERE
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "parquet"]),
    default="jsonl",
    show_default=True,
    help="Lines of JSON, or a Parquet file (needs pyarrow).",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="The file, which must not exist. [default: stdout]",
)
def export_command(
    *, where: Expression | None, form: str, output: Path | None, **options: Any
) -> int:
    """Write dead letters with key, value and headers as they are, nothing masked.

    A line has the record, and what is known about it. Bytes that are no UTF-8 stand as base64.
    """

    def action(_: DeadLetterSource, topics: DeadLetterTopics) -> int:
        letters = topics.letters(where, round(time.time() * 1000))
        if form == "jsonl":
            written = write_lines(letters, output)
        else:
            if output is None:
                raise UsageError("--format parquet needs --output: a file to write")
            written = write_parquet(letters, output)
        if output is not None:
            click.echo(f"{written} dead letters in {output}", err=True)
        return OK

    return open_dead_letters(options, action)
