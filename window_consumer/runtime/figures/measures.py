"""The input of metrics: the snapshot of a worker, and figures that belong to no moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from window_consumer.engine.counters import Counters
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot


@frozen
class SpanFigures:
    """The figures of one worker's spans."""

    made: int
    dropped: Mapping[str, int]
    """By reason, see the list of metrics."""


@frozen
class TraceFigures:
    """The figures of one process's message trace."""

    written: int
    """The number of events passed to the exporter."""
    lost: Mapping[str, int]
    """The number of lost events by reason, see the list of metrics."""
    torn: int
    held_bytes: int | None
    """None without a spool."""
    blocked_s: float


@frozen
class AuditFigures:
    """The figures of one process's audit counts."""

    shipped: int
    lost: Mapping[str, int]
    """The number of records missing in the counts by reason, see the list of metrics."""
    torn: int
    held_bytes: int
    blocked_s: float


RELAY_FAILED: Final = "outbox: the relay failed: "
"""Begins a line of ``/readyz``; ``doctor`` looks for it."""


@frozen
class OutboxFigures:
    """What the relay of one process has done."""

    sent: int
    refused: int
    oldest_s: float
    """The age of the oldest row that is due and not sent."""
    failure: str | None = None
    """The unexpected error that stopped the relay, until it relays again."""


@frozen
class OutboxBacklog:
    """What waits in an outbox, whoever relays it."""

    oldest_s: float = 0.0
    """The age of the oldest row that is due."""
    blocked: int = 0
    """Rows that Kafka refuses, and whose keys wait."""
    error: str | None = None
    """Why the database could not be asked."""
    failures: Sequence[str] = ()
    """Why the relays of processes that were asked do not run."""


@frozen
class ProcessFigures:
    """The figures that all workers of a process share."""

    trace: TraceFigures | None = None
    """None without a trace."""
    audit: AuditFigures | None = None
    outbox: OutboxFigures | None = None


@frozen
class Measures:
    """One worker at one moment."""

    snapshot: WorkerSnapshot
    """Without windows if the poll thread did not answer in time, or was not asked."""
    counters: Counters
    ordering: str = "unordered"
    events_lost: int = 0
    """The number of events that were lost to exceptions of observers."""
    spans: SpanFigures | None = None
    """None without spans."""
    durations: Histogram | None = None
    """The durations of calls, where there are no windows."""
    of_process: ProcessFigures = ProcessFigures()
    """The same for all workers of an application."""

    @property
    def worker(self) -> str:
        """The worker's name."""
        return self.snapshot.name

    @property
    def windows(self) -> WindowsSnapshot | None:
        """The windows, as shown by its poll thread."""
        return self.snapshot.windows
