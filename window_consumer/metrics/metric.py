"""What a metric is: its name, kind, unit and labels, and where its figures come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

from attrs import frozen

from window_consumer.engine.latency_histogram import Histogram
from window_consumer.runtime.figures.measures import Measures


class MetricKind(StrEnum):
    """What kind of figure it is."""

    COUNTER = "counter"
    """Only grows, and begins at 0 with each process."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Convention(NamedTuple):
    """What OpenTelemetry's conventions call a figure that has another name here."""

    name: str
    unit: str
    meaning: str


Sample = tuple[tuple[str, ...], float | Histogram]
"""The values of the metric's labels, after that of the worker, and the figure."""


@frozen
class Metric:
    """One metric of the list."""

    name: str
    kind: MetricKind
    unit: str
    """In UCUM: ``s``, ``By``, ``1`` for a share, ``{record}`` for what is counted."""
    meaning: str
    read: Callable[[Measures], Iterable[Sample]]
    labels: tuple[str, ...] = ()
    """Beside ``worker``, which all have but those of the whole process."""
    of_process: bool = False
    """It is not one worker's: each of them has the same figure."""
    convention: Convention | None = None
    """Under this name it goes to OpenTelemetry, too."""
