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
        "Events of the message trace that were passed to the exporter.",
        lambda trace: trace.written,
    ),
    Metric(
        "window_consumer.trace.dropped",
        MetricKind.COUNTER,
        "{event}",
        "Lost events of the message trace: no room in memory (memory) or on disk (disk), no batch"
        " could be built (made), or the brokers did not accept them (broker).",
        _lost_events,
        ("reason",),
        of_process=True,
    ),
    metric_of(
        TraceFigures,
        "trace.torn",
        MetricKind.COUNTER,
        "{batch}",
        "Batches of the message trace that an earlier process wrote only partly.",
        lambda trace: trace.torn,
    ),
    metric_of(
        TraceFigures,
        "trace.held",
        MetricKind.GAUGE,
        "By",
        "Size of the message trace's spool, for all processes that use its directory.",
        lambda trace: trace.held_bytes,
    ),
    metric_of(
        TraceFigures,
        "trace.blocked",
        MetricKind.GAUGE,
        "s",
        "How long no event of the message trace could be exported, 0 while exports work.",
        lambda trace: trace.blocked_s,
    ),
)
