"""The metrics of cancellations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from window_consumer.delay.cancellations import CancellationFigures
from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind, Sample


def _of(figure: Callable[[CancellationFigures], int]) -> Callable[[Measures], Iterable[Sample]]:
    def read(measures: Measures) -> Iterable[Sample]:
        found = measures.features.of(CancellationFigures)
        return [] if found is None else [((), figure(found))]

    return read


METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "window_consumer.delay.cancellations",
        MetricKind.GAUGE,
        "{record}",
        "Cancellations that a member of the delay service holds; every member holds all of them.",
        _of(lambda figures: figures.kept),
    ),
    Metric(
        "window_consumer.delay.cancellations.late",
        MetricKind.COUNTER,
        "{record}",
        "Cancellations that came too late: this member had already delivered the record.",
        _of(lambda figures: figures.late),
    ),
)
