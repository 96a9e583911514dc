"""Shared by the trace commands: opens the table and prints events."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

import attrs
import click
from rich.console import Console
from rich.table import Table

from window_consumer.model.redaction import Mask, printable_line
from window_consumer.spark.plan import PipelinePlan
from window_consumer.trace.event import TraceEvent
from window_consumer.trace.lookup import Journeys

indexed_only_option = click.option(
    "--indexed-only", is_flag=True, help="Use only the table; skip later events in Kafka."
)
cluster_option = click.option(
    "--cluster",
    metavar="BOOTSTRAP",
    default=None,
    help="Only steps whose writers name this cluster, if several clusters share a trace.",
)


def open_journeys(plan: PipelinePlan, *, indexed_only: bool) -> Journeys:
    """Open the table; raise UsageError if it, or the library that reads it, is missing."""
    return Journeys(plan, indexed_only=indexed_only)


def print_notes(notes: Iterable[str], plan: PipelinePlan) -> None:
    """Print an answer's notes to stderr."""
    mask = Mask(plan.secrets)
    for note in notes:
        click.echo(f"note: {mask(note)}", err=True)


def console() -> Console:
    """Return the console for answers: as wide as the terminal, and wide enough for a file."""
    return Console(width=None if Console().is_terminal else 200)


def print_json(events: Iterable[TraceEvent]) -> None:
    """Print events, one JSON object per line."""
    for event in events:
        click.echo(json.dumps(attrs.asdict(event)))


def print_events(events: Iterable[TraceEvent]) -> None:
    """Print events as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("time (UTC)", "step", "status", "place", "record", "by", "attempt", "ms", "error"):
        table.add_column(name, justify="right" if name in {"attempt", "ms"} else "left")
    for event in events:
        table.add_row(*map(printable_line, _row(event)))
    console().print(table, markup=False)


def _row(event: TraceEvent) -> tuple[str, ...]:
    time = datetime.fromtimestamp(event.time_us / 1e6, UTC)
    place = event.topic if event.partition is None else f"{event.topic}[{event.partition}]"
    if event.offset is not None:
        place += f"@{event.offset}"
    who = "/".join(filter(None, (event.group, event.handler))) or event.client_id or ""
    error = " ".join(filter(None, (event.error_class, event.error_fingerprint)))
    return (
        f"{time:%Y-%m-%d %H:%M:%S.%f}"[:-3],
        event.step,
        event.status,
        place,
        event.record_id or "",
        who,
        "" if event.attempt is None else str(event.attempt),
        "" if event.duration_us is None else f"{event.duration_us / 1000:,.1f}",
        error,
    )
