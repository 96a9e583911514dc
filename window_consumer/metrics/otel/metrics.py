"""Metrics of spans, separately for each worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import frozen

from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind, Sample


@frozen
class SpanFigures:
    """The figures of one worker's spans."""

    made: int
    dropped: Mapping[str, int]
    """By reason, see the list of metrics."""


def _spans(measures: Measures) -> Iterable[Sample]:
    spans = measures.features.of(SpanFigures)
    return [] if spans is None else [((), spans.made)]


def _dropped_spans(measures: Measures) -> Iterator[Sample]:
    spans = measures.features.of(SpanFigures)
    for why, count in () if spans is None else spans.dropped.items():
        yield (why,), count


METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "window_consumer.telemetry.spans",
        MetricKind.COUNTER,
        "{span}",
        "Spans of slices, calls and copies for OpenTelemetry; of this process alone.",
        _spans,
    ),
    Metric(
        "window_consumer.telemetry.spans.dropped",
        MetricKind.COUNTER,
        "{span}",
        "Lost spans: above spans_per_second (limit), not created (failed), queue full because the"
        " collector is too slow (queue), or not accepted by it (refused).",
        _dropped_spans,
        ("reason",),
    ),
)
