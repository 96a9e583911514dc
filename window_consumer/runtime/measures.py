"""What one worker is and has done at a moment: the one source for all metrics."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from window_consumer.engine.counters import Counters
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.snapshot import Snapshot


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
class OfProcess:
    """What is not one worker's, but that of all workers of a process."""

    trace: TraceFigures | None = None
    """None where there is none."""
    audit: AuditFigures | None = None


@frozen
class Measures:
    """One worker at one moment."""

    worker: str
    group: str
    ordering: str
    ready: bool
    """It is in its group and works, or waits for something to do."""
    silent_s: float
    """For how long its poll thread has not been seen at work."""
    counters: Counters
    picture: Snapshot | None
    """None where the poll thread did not answer in time."""
    busy_ratio: float | None = None
    """The share of the slots' time that calls took in the last minute; None while unknown."""
    time_to_drain_s: float | None = None
    """How long all that lags would take at the pace of the last minute; infinity where nothing was
    finished in it, None while unknown."""
    events_lost: int = 0
    """What somebody who listens has raised has cost so many events."""
    spans: SpanFigures | None = None
    """None where there are none."""
    durations: Histogram | None = None
    """How long calls took, where there is no picture to ask."""
    of_process: OfProcess = OfProcess()
    """The same for all workers of an application."""
