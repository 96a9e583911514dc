"""Metrics of the outbox.

All workers of a process share them, so they have no label ``worker``.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from window_consumer.runtime.figures.metric import Metric, MetricKind, metric_of


@frozen
class OutboxFigures:
    """The counts of one process's relay."""

    sent: int
    refused: int
    oldest_s: float
    """The age of the oldest row that is due and not sent."""
    failure: str | None = None
    """The unexpected error that stopped the relay, until it relays again."""


METRICS: Final[tuple[Metric, ...]] = (
    metric_of(
        OutboxFigures,
        "outbox.sent",
        MetricKind.COUNTER,
        "{row}",
        "Rows of the outbox that this process has sent, and Kafka has acknowledged.",
        lambda outbox: outbox.sent,
    ),
    metric_of(
        OutboxFigures,
        "outbox.refused",
        MetricKind.COUNTER,
        "{row}",
        "Rows of the outbox that Kafka has refused for good, counted at each attempt.",
        lambda outbox: outbox.refused,
    ),
    metric_of(
        OutboxFigures,
        "outbox.oldest",
        MetricKind.GAUGE,
        "s",
        "The age of the oldest row of the outbox that is due and not sent; 0 if there is none.",
        lambda outbox: outbox.oldest_s,
    ),
)
