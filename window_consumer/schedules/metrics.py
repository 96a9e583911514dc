"""The metrics of schedules."""

from __future__ import annotations

from typing import Final

from window_consumer.runtime.figures.metric import Metric, MetricKind, metric_of
from window_consumer.schedules.sender import ScheduleFigures

METRICS: Final[tuple[Metric, ...]] = (
    metric_of(
        ScheduleFigures,
        "schedules.ticks",
        MetricKind.COUNTER,
        "{record}",
        "Ticks of schedules that their topics have acknowledged.",
        lambda figures: figures.sent,
    ),
    metric_of(
        ScheduleFigures,
        "schedules.failing",
        MetricKind.GAUGE,
        "{schedule}",
        "Schedules whose due ticks cannot be sent, and are retried. Alert if it stays above 0.",
        lambda figures: figures.failing,
    ),
)
