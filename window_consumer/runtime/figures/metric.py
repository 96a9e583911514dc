"""Definition of a metric: name, kind, unit, labels and the source of its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple, TypeVar

from attrs import frozen

from window_consumer.engine.latency_histogram import Histogram
from window_consumer.runtime.figures.measures import Measures

F = TypeVar("F")


class MetricKind(StrEnum):
    """The kind of a figure."""

    COUNTER = "counter"
    """Only grows, and begins at 0 with each process."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Convention(NamedTuple):
    """The name that OpenTelemetry's conventions give a figure with another name here."""

    name: str
    unit: str
    meaning: str


Sample = tuple[tuple[str, ...], float | Histogram]
"""The values of the metric's labels, after the worker's, and the figure."""


@frozen
class Metric:
    """One metric of the list."""

    name: str
    kind: MetricKind
    unit: str
    """In UCUM: ``s``, ``By``, ``1`` for a share, ``{record}`` for a count of records."""
    meaning: str
    read: Callable[[Measures], Iterable[Sample]]
    labels: tuple[str, ...] = ()
    """Labels in addition to ``worker``, which all metrics except those of the process have."""
    of_process: bool = False
    """Whether it concerns the whole process: every worker reports the same figure."""
    convention: Convention | None = None
    """OpenTelemetry also gets it under this name."""


def metric_of(
    figures: type[F],
    name: str,
    kind: MetricKind,
    unit: str,
    meaning: str,
    of: Callable[[F], float | None],
) -> Metric:
    """Return a metric of a feature's figures of the whole process; it may have no values."""

    def read(measures: Measures) -> Iterable[Sample]:
        found = measures.of_process.of(figures)
        return [] if found is None else [] if (figure := of(found)) is None else [((), figure)]

    return Metric(f"window_consumer.{name}", kind, unit, meaning, read, of_process=True)
