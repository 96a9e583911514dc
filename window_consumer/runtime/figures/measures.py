"""What metrics read: the snapshot of a worker, and what belongs to no moment."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from window_consumer.engine.counters import Counters
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot


@frozen
class SpanFigures:
    """What has become of the spans of one worker."""

    made: int
    dropped: Mapping[str, int]
    """By why: see the list of metrics."""


@frozen
class TraceFigures:
    """What has become of the message trace of one process."""

    written: int
    """Events that were handed to the way out."""
    lost: Mapping[str, int]
    """Events that nobody gets, by why: see the list of metrics."""
    torn: int
    held_bytes: int | None
    """None where there is no spool."""
    blocked_s: float


@frozen
class AuditFigures:
    """What has become of the counts of one process."""

    shipped: int
    lost: Mapping[str, int]
    """Records that are in no count, by why: see the list of metrics."""
    torn: int
    held_bytes: int
    blocked_s: float


@frozen
class OutboxFigures:
    """What the relay of one process has done."""

    sent: int
    refused: int
    oldest_s: float
    """The age of the oldest row that is due and not sent."""


@frozen
class OutboxBacklog:
    """What waits in an outbox, whoever relays it."""

    oldest_s: float = 0.0
    """The age of the oldest row that is due."""
    blocked: int = 0
    """Rows that Kafka refuses, and whose keys wait."""
    error: str | None = None
    """Why the database could not be asked."""


@frozen
class ProcessFigures:
    """What is not one worker's, but that of all workers of a process."""

    trace: TraceFigures | None = None
    """None where there is none."""
    audit: AuditFigures | None = None
    outbox: OutboxFigures | None = None


@frozen
class Measures:
    """One worker at one moment."""

    snapshot: WorkerSnapshot
    """Without windows where the poll thread did not answer in time, or was not asked."""
    counters: Counters
    ordering: str = "unordered"
    events_lost: int = 0
    """What somebody who listens has raised has cost so many events."""
    spans: SpanFigures | None = None
    """None where there are none."""
    durations: Histogram | None = None
    """How long calls took, where there are no windows to ask."""
    of_process: ProcessFigures = ProcessFigures()
    """The same for all workers of an application."""

    @property
    def worker(self) -> str:
        """The worker's name."""
        return self.snapshot.name

    @property
    def windows(self) -> WindowsSnapshot | None:
        """What its poll thread has shown."""
        return self.snapshot.windows
