"""Which records a bucket's difference is about, for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from window_consumer.cli.terminal import printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def print_explanation(rows: DataFrame, *, as_json: bool) -> None:
    """Print a paragraph, or a JSON object, for each partition."""
    found = [row.asDict() for row in rows.orderBy("topic", "group", "partition").collect()]
    if as_json:
        for row in found:
            click.echo(json.dumps({"what": "explanation", **row}))
        return
    if not found:
        click.echo("nothing differs in that bucket")
    for row in found:
        who = printable(row["group"]) or "no group"
        place = f"{printable(row['topic'])}[{row['partition']}]"
        click.echo(f"{place}, {who}: {row['came']:,} came, {row['left']:,} left")
        _runs("nobody has counted offsets", row["missing"])
        _runs("counted offsets, with others of theirs", row["counted"])
        for each in row["unknown_ids"] or ():
            click.echo(f"  of which nobody knows: {printable(each)}")


def _runs(what: str, runs: Iterable[tuple[int, int]] | None) -> None:
    told = ", ".join(
        f"{first}" if stop == first + 1 else f"{first}-{stop - 1}" for first, stop in runs or ()
    )
    if told:
        click.echo(f"  {what} {told}")
