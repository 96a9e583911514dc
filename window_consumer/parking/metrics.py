"""The metrics of parking."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from window_consumer.parking.rules import ParkingFigures
from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind, Sample


def _of(figure: Callable[[ParkingFigures], int]) -> Callable[[Measures], Iterable[Sample]]:
    def read(measures: Measures) -> Iterable[Sample]:
        found = measures.features.of(ParkingFigures)
        return [] if found is None else [((), figure(found))]

    return read


METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "window_consumer.parked.keys",
        MetricKind.GAUGE,
        "{key}",
        "Keys in the ladder of a worker with on_failure: park; one record of each waits in a"
        " level or runs.",
        _of(lambda figures: figures.keys),
    ),
    Metric(
        "window_consumer.parked.followers",
        MetricKind.GAUGE,
        "{record}",
        "Records that wait behind the first one of their key in the ladder.",
        _of(lambda figures: figures.followers),
    ),
)
