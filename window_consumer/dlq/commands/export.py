"""``window-consumer dlq export``: write unchanged dead letters into a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from window_consumer.cli.output import OK
from window_consumer.dlq.commands.options import WHERE, open_dead_letters, topic_options
from window_consumer.dlq.files import write_lines, write_parquet
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
    """Write dead letters with their unchanged key, value and headers; nothing is masked.

    Each line holds one record and its known metadata. Bytes that are not UTF-8 are written as
    base64.
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
