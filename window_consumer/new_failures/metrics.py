"""The metrics of new failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from window_consumer.new_failures.rule import NewFailureFigures
from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind, Sample


def _of(figure: Callable[[NewFailureFigures], int]) -> Callable[[Measures], Iterable[Sample]]:
    def read(measures: Measures) -> Iterable[Sample]:
        found = measures.features.of(NewFailureFigures)
        return [] if found is None else [((), figure(found))]

    return read


METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "window_consumer.new_failure.calls",
        MetricKind.COUNTER,
        "{call}",
        "First calls of records that failed with a new fingerprint: no other version of the"
        " application had it among its dead letters at the start, and nobody has accepted it.",
        _of(lambda figures: figures.calls),
    ),
    Metric(
        "window_consumer.new_failure.undecided",
        MetricKind.GAUGE,
        "{fingerprint}",
        "New fingerprints with more than on_new_failure.share of the calls, until somebody"
        " resumes the worker.",
        _of(lambda figures: figures.undecided),
    ),
)
