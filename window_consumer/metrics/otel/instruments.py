"""The metrics as observable OpenTelemetry instruments, so that nothing is counted twice.

Nothing happens until the exporter asks, by default every minute.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

from attrs import frozen
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from window_consumer.engine.latency_histogram import Histogram
from window_consumer.metrics.catalog import METRICS
from window_consumer.metrics.otel import attributes as names
from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind


@frozen(eq=False)
class InstrumentedWorkers:
    """The workers of one application."""

    measure: Callable[[], Sequence[Measures]]
    last: Callable[[], Sequence[Measures]]
    """Measures the workers once more after their end."""


_KEPT_S: Final = 0.5
"""The exporter reads all instruments one after the other; their figures must be of one moment."""

LAST_S: Final = 10.0
"""How long the figures of ended workers remain, to be exported once more."""


class Figures:
    """The workers that the instruments report: running ones, and those that have just ended.

    Any thread may ask.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[InstrumentedWorkers] = []
        self._ended: list[tuple[float, Sequence[Measures]]] = []
        """Figures of ended workers, with the time until which they are reported."""
        self._now: Sequence[Measures] = ()
        self._at = float("-inf")
        self.labels: Mapping[str, str] = {}
        """Labels that distinguish this process from others."""

    def begin(self, source: InstrumentedWorkers) -> None:
        """Report these workers from now on."""
        with self._lock:
            self._running.append(source)
            self._at = float("-inf")

    def end(self, source: InstrumentedWorkers) -> None:
        """Report these workers, which have ended, for the last time."""
        last = source.last()
        with self._lock:
            self._running.remove(source)
            self._ended.append((monotonic() + LAST_S, last))
            self._at = float("-inf")

    def now(self) -> Sequence[Measures]:
        """Return the figures to report."""
        with self._lock:
            now = monotonic()
            if now - self._at > _KEPT_S:
                self._ended = [each for each in self._ended if each[0] > now]
                running = [each for source in self._running for each in source.measure()]
                names = {each.worker for each in running}
                ended = [
                    each
                    for _, measures in self._ended
                    for each in measures
                    if each.worker not in names  # it has been started again
                ]
                self._now, self._at = [*running, *ended], monotonic()
            return self._now


def instrument(meter: Meter, figures: Figures, metrics: Iterable[Metric] = METRICS) -> None:
    """Create an instrument for each metric, and a second one if the conventions rename it.

    Histograms are excluded, because there are no observable ones, see ``exporting``.
    """
    for metric in metrics:
        callback = [partial(_observe, figures, metric, attributes_of)]
        if metric.kind is MetricKind.COUNTER:
            meter.create_observable_counter(metric.name, callback, metric.unit, metric.meaning)
        elif metric.kind is MetricKind.GAUGE:
            meter.create_observable_gauge(metric.name, callback, metric.unit, metric.meaning)
        if metric.convention is not None:
            callback = [partial(_observe, figures, metric, conventional_attributes_of)]
            name, unit, meaning = metric.convention
            meter.create_observable_counter(name, callback, unit, meaning)


AttributesOf = Callable[[Measures, Mapping[str, str]], dict[str, Any]]


def attributes_of(worker: Measures, common: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of our own metrics: the same as Prometheus' labels."""
    return {**common, "worker": worker.worker}


def conventional_attributes_of(worker: Measures, common: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of metrics that the conventions describe."""
    group = worker.snapshot.group
    return {
        **common,
        names.SYSTEM: "kafka",
        names.OPERATION: "process",
        **({names.GROUP: group} if group else {}),
        names.WORKER: worker.worker,
    }


def samples(
    figures: Figures, metric: Metric, of_worker: AttributesOf
) -> Iterator[tuple[dict[str, Any], float | Histogram]]:
    """Return all figures of a metric with their attributes."""
    if metric.of_process:
        yield from _of_process(figures, metric)
        return
    for worker in figures.now():
        shared = of_worker(worker, figures.labels)
        for values, figure in metric.read(worker):
            yield {**shared, **dict(zip(metric.labels, values, strict=True))}, figure


def _of_process(
    figures: Figures, metric: Metric
) -> Iterator[tuple[dict[str, Any], float | Histogram]]:
    """Return a process metric's figures: the sum of all applications in it."""
    found: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for worker in {id(each.of_process): each for each in figures.now()}.values():
        for values, figure in metric.read(worker):
            assert not isinstance(figure, Histogram)
            found[values].append(figure)
    joined = sum if metric.kind is MetricKind.COUNTER else max
    for values, each in found.items():
        yield {**figures.labels, **dict(zip(metric.labels, values, strict=True))}, joined(each)


def _observe(
    figures: Figures, metric: Metric, of_worker: AttributesOf, _options: CallbackOptions
) -> Iterator[Observation]:
    for attributes, figure in samples(figures, metric, of_worker):
        assert not isinstance(figure, Histogram)
        yield Observation(figure, attributes)
