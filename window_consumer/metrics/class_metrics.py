"""The metrics of classes that share the slots: the 20 that have used most, and the rest.

Classes that are keys are summed up: there are too many, and keys may be confidential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.shares_snapshot import ShareSnapshot, sum_of
from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind, Sample


def _classes(measures: Measures) -> Sequence[ShareSnapshot]:
    shares = None if measures.windows is None else measures.windows.shares
    if shares is None or not shares.largest:
        return ()
    return (sum_of(shares.largest),) if shares.of_keys else shares.largest


def _of_class(
    name: str,
    kind: MetricKind,
    unit: str,
    meaning: str,
    of: Callable[[ShareSnapshot], float | Histogram],
) -> Metric:
    """Return a metric of each class."""

    def read(measures: Measures) -> Iterator[Sample]:
        for each in _classes(measures):
            yield (each.name,), of(each)

    return Metric(f"window_consumer.class.{name}", kind, unit, meaning, read, ("class",))


def _overflow(measures: Measures) -> Iterator[Sample]:
    shares = None if measures.windows is None else measures.windows.shares
    if shares is not None:
        yield (), shares.overflow


CLASS_METRICS: Final[tuple[Metric, ...]] = (
    _of_class(
        "waiting",
        MetricKind.GAUGE,
        "{record}",
        "With fair, records of the class in windows that have not started.",
        lambda each: each.waiting,
    ),
    _of_class(
        "slots",
        MetricKind.GAUGE,
        "{slot}",
        "With fair, slots that the class holds.",
        lambda each: each.slots,
    ),
    _of_class(
        "slot_time",
        MetricKind.COUNTER,
        "s",
        "With fair, the slot time that the class has used.",
        lambda each: each.used_s,
    ),
    _of_class(
        "starved",
        MetricKind.GAUGE,
        "s",
        "With fair, how long records of the class have waited while none ran or started.",
        lambda each: each.starved_s,
    ),
    _of_class(
        "wait.duration",
        MetricKind.HISTOGRAM,
        "s",
        "With fair, how long records of the class waited in windows before their first call.",
        lambda each: each.waits,
    ),
    Metric(
        "window_consumer.class.overflow",
        MetricKind.COUNTER,
        "{record}",
        "With fair, records that joined those without a class: there were more than max_classes.",
        _overflow,
    ),
)
