"""Prints the audit's report, its buckets and the records behind a difference, as tables or JSON."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.table import Table

from window_consumer.audit.states import ALARMING, TERMS, UNREMARKABLE
from window_consumer.cli.options import since_1970
from window_consumer.model.errors import UsageError
from window_consumer.model.redaction import printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from window_consumer.audit.spark.report import AuditReport


_Place = tuple[str, str]
"""A topic and a group."""

MOST_BUCKETS: Final = 50
"""The most buckets that a table shows; JSON has all of them."""

_ALWAYS: Final = {"produced", "finished", "retried", "dead_lettered", "in_flight", "lost"} | {
    "duplicated"
}
"""Columns that are always shown. The others appear only if they have a value."""


def print_json(
    report: AuditReport, since_ms: int, now_ms: int, seen: Mapping[str, Any]
) -> set[str]:
    """Print a JSON object per line: each bucket, then latencies. Return the findings.

    ``seen`` are further fields of the last object, which describes the report.
    """
    found = set()
    in_order = report.findings.cache().orderBy("bucket_ms", "topic", "group")
    for row in in_order.toLocalIterator():
        found.add(row.finding)
        content = {"what": "bucket", "bucket": name_of(row.bucket_ms), **row.asDict()}
        click.echo(json.dumps(content))
    for latency in _latencies(report):
        click.echo(json.dumps({"what": "latency", **latency}))
    asked = {"what": "report", "since": name_of(since_ms), "at": name_of(now_ms)}
    click.echo(json.dumps({**asked, **seen, "lost": bool(ALARMING.intersection(found))}))
    return found


def print_report(report: AuditReport, since_ms: int, now_ms: int) -> set[str]:
    """Print tables of topics, notable buckets and latencies. Return the findings."""
    topics: defaultdict[_Place, Counter[str]] = defaultdict(Counter)
    found: defaultdict[_Place, Counter[str]] = defaultdict(Counter)
    odd = []
    for row in report.findings.toLocalIterator():
        place = row.topic, row.group
        topics[place].update({term: row[term] for term in TERMS})
        found[place][row.finding] += 1
        if row.finding not in UNREMARKABLE:
            odd.append(row.asDict())
    click.echo(f"buckets since {name_of(since_ms)}, as counted until {name_of(now_ms)}")
    if not topics:
        click.echo("nothing was counted")
        return set()
    _print(_topics(topics))
    for place in sorted(found):
        shown = ", ".join(f"{number} {name}" for name, number in sorted(found[place].items()))
        click.echo(f"{_whose(place)}: buckets: {shown}")
    if odd:
        odd.sort(key=lambda row: (not row["lost"], -row["bucket_ms"], row["topic"], row["group"]))
        click.echo()
        _print(_buckets(odd[:MOST_BUCKETS]))
        if len(odd) > MOST_BUCKETS:
            click.echo(f"... and {len(odd) - MOST_BUCKETS} more: --json has all")
    _print_latencies(report)
    return {name for names in found.values() for name in names}


def _print_latencies(report: AuditReport) -> None:
    rows = _latencies(report)
    if not rows:
        return
    click.echo()
    table = _table(["topic", "group", "host"], ["records", "p50 ms", "p95 ms", "p99 ms"])
    for row in rows:
        place = (row["topic"], row["group"], row["host"] or "all hosts")
        numbers = [row[name] for name in ("count", "p50_ms", "p95_ms", "p99_ms")]
        table.add_row(*map(printable, place), *(f"{number:,}" for number in numbers))
    _print(table)


def _topics(topics: Mapping[_Place, Mapping[str, int]]) -> Table:
    terms = _terms(topics.values())
    table = _table(["topic", "group"], [TERMS[term] for term in terms])
    for place in sorted(topics):
        numbers = (f"{topics[place][term]:,}" for term in terms)
        table.add_row(*map(printable, place), *numbers)
    return table


def _buckets(rows: Iterable[Mapping[str, Any]]) -> Table:
    terms = _terms(rows)
    table = _table(["bucket", "topic", "group", "state", "found"], [TERMS[t] for t in terms])
    for row in rows:
        state = row["state"] + (" (late)" if row["was_reopened"] else "")
        names = (name_of(row["bucket_ms"]), row["topic"], row["group"], state, row["finding"])
        table.add_row(*map(printable, names), *(f"{row[term]:,}" for term in terms))
    return table


def _terms(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = list(rows)
    return [term for term in TERMS if term in _ALWAYS or any(row[term] for row in rows)]


def _table(names: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _print(table: Table) -> None:
    Console(width=None if Console().is_terminal else 250).print(table)


def _latencies(report: AuditReport) -> list[dict[str, Any]]:
    rows = report.latencies.orderBy("topic", "group", "host").collect()
    return [row.asDict() for row in rows]


def _whose(place: _Place) -> str:
    topic, group = map(printable, place)
    return f"{topic}, {group or 'no group'}"


def findings_in(report: AuditReport, bucket_ms: int) -> set[str]:
    """Return the findings of a bucket; UsageError if no bucket begins then."""
    found = report.findings.where(f"bucket_ms = {bucket_ms:d}").select("finding").distinct()
    names = {row.finding for row in found.collect()}
    if not names:
        raise UsageError(
            f"nothing was counted in a bucket {name_of(bucket_ms)} with this --topic and"
            " --group: give the bucket's start, as `audit report` prints it"
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
        _runs("offsets counted together", row["counted"])
        for each in row["unknown_ids"] or ():
            click.echo(f"  with an unknown fate: {printable(each)}")


def _runs(what: str, runs: Iterable[tuple[int, int]] | None) -> None:
    shown = ", ".join(
        f"{first}" if stop == first + 1 else f"{first}-{stop - 1}" for first, stop in runs or ()
    )
    if shown:
        click.echo(f"  {what} {shown}")


WITHOUT_TIMESTAMP: Final = "without timestamp"
"""The report's name for the bucket without a start."""


def bucket_of(text: str) -> int:
    """Read a bucket's start as the report prints it: ISO 8601, by default in UTC.

    Returns milliseconds since 1970, 0 for the bucket without a start; raises ValueError.
    """
    if text == WITHOUT_TIMESTAMP:
        return 0
    try:
        start_ms = since_1970(text, 1000)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not the start of a bucket, such as 2026-01-31T12:00:00Z"
        ) from None
    if start_ms < 0:
        raise ValueError(f"{text!r} is before 1970, where there are no buckets")
    return start_ms


def name_of(bucket_ms: int) -> str:
    """Return the name of a bucket: its start in UTC."""
    if not bucket_ms:
        return WITHOUT_TIMESTAMP
    return f"{datetime.fromtimestamp(bucket_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
