"""Metrics of the message trace.

All workers of a process share them, so they have no label ``worker``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind, Sample, metric_of


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


def _lost_events(measures: Measures) -> Iterable[Sample]:
    trace = measures.of_process.of(TraceFigures)
    return [] if trace is None else [((why,), count) for why, count in trace.lost.items()]


METRICS: Final[tuple[Metric, ...]] = (
    metric_of(
        TraceFigures,
        "trace.events",
        MetricKind.COUNTER,
        "{event}",
        "Events of the message trace that were handed to their way out.",
        lambda trace: trace.written,
    ),
    Metric(
        "window_consumer.trace.dropped",
        MetricKind.COUNTER,
        "{event}",
        "Events of the message trace that nobody gets: they found no room in memory (memory) or on"
        " disk (disk), could not be made a batch of (made), or the brokers did not take them"
        " (broker).",
        _lost_events,
        ("reason",),
        of_process=True,
    ),
    metric_of(
        TraceFigures,
        "trace.torn",
        MetricKind.COUNTER,
        "{batch}",
        "Batches of the message trace of which an earlier process had written only a part.",
        lambda trace: trace.torn,
    ),
    metric_of(
        TraceFigures,
        "trace.held",
        MetricKind.GAUGE,
        "By",
        "What lies in the spool of the message trace, of all processes that use its directory.",
        lambda trace: trace.held_bytes,
    ),
    metric_of(
        TraceFigures,
        "trace.blocked",
        MetricKind.GAUGE,
        "s",
        "For how long no event of the message trace has got away, 0 while they do.",
        lambda trace: trace.blocked_s,
    ),
)
