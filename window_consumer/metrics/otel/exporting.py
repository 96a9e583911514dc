"""Wraps the SDK's exporters: counts failed exports, and adds histograms."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from time import time_ns
from typing import Any, Final

from attrs import define
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.metrics.export import Metric as MetricData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from window_consumer.engine.latency_histogram import BOUNDS_S, Histogram
from window_consumer.metrics.catalog import METRICS
from window_consumer.metrics.otel import attributes as names
from window_consumer.metrics.otel.instruments import Figures, conventional_attributes_of, samples
from window_consumer.runtime.figures.metric import Metric, MetricKind


@define(eq=False)
class WorkerAttributes:
    """The figures of one worker's spans; spans without a worker count for the worker ""."""

    exported: int = 0
    dropped: int = 0
    """The queue was full: the collector is too slow."""
    refused: int = 0
    """The collector did not accept them after all retries."""


class Exported:
    """The figures of this process's spans. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = 0
        self._workers: defaultdict[str, WorkerAttributes] = defaultdict(WorkerAttributes)

    def of(self, worker: str) -> WorkerAttributes:
        """Return the figures of a worker's spans."""
        return self._workers[worker]

    def queue(self, span: ReadableSpan, most: int) -> bool:
        """Count a span that waits for its export; return False if there is no room for it."""
        with self._lock:
            if self._waiting >= most:
                self.of(_worker_of(span)).dropped += 1
                return False
            self._waiting += 1
            return True

    def take(self, count: int) -> None:
        """Count spans that no longer wait."""
        with self._lock:
            self._waiting -= count

    def answered(self, spans: Sequence[ReadableSpan], *, well: bool) -> None:
        """Count spans that the collector accepted, or did not."""
        with self._lock:
            for worker, count in Counter(map(_worker_of, spans)).items():
                if well:
                    self.of(worker).exported += count
                else:
                    self.of(worker).refused += count


def _worker_of(span: ReadableSpan) -> str:
    return str((span.attributes or {}).get(names.WORKER, ""))


class CountedExporter(SpanExporter):
    """Counts the results of an exporter."""

    def __init__(self, exporter: SpanExporter, exported: Exported):
        self._exporter = exporter
        self._exported = exported

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export, and count."""
        self._exported.take(len(spans))
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._exported.answered(spans, well=result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        """Shut down and give up what is being sent."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Pass the call on."""
        return self._exporter.force_flush(timeout_millis)


class CountedProcessor(BatchSpanProcessor):
    """The SDK's batches, with a queue that counts its overflow instead of logging each span."""

    def __init__(self, exporter: SpanExporter, exported: Exported):
        super().__init__(CountedExporter(exporter, exported))
        self._exported = exported
        self._most: int = self._default_max_queue_size()  # type: ignore[no-untyped-call] # the SDK's

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span for export if there is room."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._exported.queue(span, self._most):
            super().on_end(span)


class WithHistograms(MetricExporter):
    """Adds the histograms of the list to each export: observable histograms do not exist."""

    def __init__(self, exporter: MetricExporter, figures: Figures):
        temporality = exporter._preferred_temporality  # noqa: SLF001 - the reader reads it in the same way
        super().__init__(temporality, exporter._preferred_aggregation)  # noqa: SLF001 - likewise
        self._exporter = exporter
        self._figures = figures
        self._is_delta = (temporality or {}).get(
            HistogramInstrument
        ) is AggregationTemporality.DELTA
        self._started_ns = time_ns()
        self._last: dict[tuple[Any, ...], Histogram] = {}

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Export the metrics with the histograms."""
        joined = self._joined(metrics_data)
        return self._exporter.export(joined, timeout_millis=timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Pass the call on."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Pass the call on."""
        self._exporter.shutdown(timeout_millis, **kwargs)

    def _joined(self, data: MetricsData) -> MetricsData:
        """Return the data with the histograms beside our other metrics."""
        found = [metric for metric in map(self._data, _HISTOGRAMS) if metric is not None]
        resources = [
            ResourceMetrics(
                each.resource,
                [_with(scope, found) for scope in each.scope_metrics],
                each.schema_url,
            )
            for each in data.resource_metrics
        ]
        return MetricsData(resources)

    def _data(self, metric: Metric) -> MetricData | None:
        now_ns = time_ns()
        points = list(self._points(metric, now_ns))
        if not points:
            return None
        if self._is_delta:
            self._started_ns = now_ns
        kind = AggregationTemporality.DELTA if self._is_delta else AggregationTemporality.CUMULATIVE
        return MetricData(metric.name, metric.meaning, metric.unit, HistogramData(points, kind))

    def _points(self, metric: Metric, now_ns: int) -> Iterator[HistogramDataPoint]:
        for attributes, figure in samples(self._figures, metric, conventional_attributes_of):
            assert isinstance(figure, Histogram)
            shown = figure
            if self._is_delta:
                key = tuple(attributes.items())
                earlier, self._last[key] = self._last.get(key), figure
                shown = figure if earlier is None else figure.since(earlier)
            yield HistogramDataPoint(
                attributes,
                self._started_ns,
                now_ns,
                shown.calls,
                shown.seconds,
                shown.counts,
                BOUNDS_S,
                _UNKNOWN,
                _UNKNOWN,
            )


_UNKNOWN: Final[Any] = None
"""Shortest and longest call, which the format may omit."""

_HISTOGRAMS: Final = [metric for metric in METRICS if metric.kind is MetricKind.HISTOGRAM]


def _with(scope: ScopeMetrics, more: Sequence[MetricData]) -> ScopeMetrics:
    if scope.scope.name != names.SCOPE:
        return scope
    return ScopeMetrics(scope.scope, [*scope.metrics, *more], scope.schema_url)
