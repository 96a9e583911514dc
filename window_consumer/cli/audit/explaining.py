"""Which records a bucket's difference is about, for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from window_consumer.cli.audit.bucket import name_of
from window_consumer.cli.terminal import printable
from window_consumer.model.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from window_consumer.pipeline.audit_report import Report


def findings_in(report: Report, bucket_ms: int) -> set[str]:
    """Return what is found in a bucket; UsageError where there is none that begins then."""
    found = report.findings.where(f"bucket_ms = {bucket_ms:d}").select("finding").distinct()
    names = {row.finding for row in found.collect()}
    if not names:
        raise UsageError(
            f"nothing was counted in a bucket {name_of(bucket_ms)}, or not of what --topic and"
            " --group ask for: a bucket is told by its start, as `audit report` prints it"
        )
    return names


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
