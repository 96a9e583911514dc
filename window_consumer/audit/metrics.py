"""Metrics of the message audit.

All workers of a process share them, so they have no label ``worker``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind, Sample, metric_of


@frozen
class AuditFigures:
    """The figures of one process's audit counts."""

    shipped: int
    lost: Mapping[str, int]
    """The number of records missing in the counts by reason, see the list of metrics."""
    torn: int
    held_bytes: int
    blocked_s: float


def _lost_counts(measures: Measures) -> Iterable[Sample]:
    audit = measures.of_process.of(AuditFigures)
    return [] if audit is None else [((why,), count) for why, count in audit.lost.items()]


METRICS: Final[tuple[Metric, ...]] = (
    metric_of(
        AuditFigures,
        "audit.counts",
        MetricKind.COUNTER,
        "{count}",
        "Counts of the audit that its topic has accepted.",
        lambda audit: audit.shipped,
    ),
    Metric(
        "window_consumer.audit.dropped",
        MetricKind.COUNTER,
        "{record}",
        "Records that the audit misses: their counts could not be written (disk), or too many"
        " were in flight at once (sends).",
        _lost_counts,
        ("reason",),
        of_process=True,
    ),
    metric_of(
        AuditFigures,
        "audit.torn",
        MetricKind.COUNTER,
        "{line}",
        "Lines of the audit's log that could not be read.",
        lambda audit: audit.torn,
    ),
    metric_of(
        AuditFigures,
        "audit.held",
        MetricKind.GAUGE,
        "By",
        "Counts in this process's log that its topic has not accepted yet.",
        lambda audit: audit.held_bytes,
    ),
    metric_of(
        AuditFigures,
        "audit.blocked",
        MetricKind.GAUGE,
        "s",
        "How long the topic of the audit has accepted nothing, 0 while it does.",
        lambda audit: audit.blocked_s,
    ),
)
