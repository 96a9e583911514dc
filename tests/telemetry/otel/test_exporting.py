"""What exporters do not get away is counted, and histograms go along with the other metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExporter,
    MetricExportResult,
    MetricsData,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tests.kernel import METRICS
from window_consumer.engine.counters import Counters
from window_consumer.engine.latency_histogram import BOUNDS_S, Histogram
from window_consumer.metrics.otel import attributes as names
from window_consumer.metrics.otel import providers
from window_consumer.metrics.otel.instruments import Figures, InstrumentedWorkers, instrument
from window_consumer.metrics.otel.metrics import SpanFigures
from window_consumer.runtime.figures.measures import FeatureFigures, Measures
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot
from window_consumer.trace.metrics import TraceFigures

DEADLINE_S = 30.0


class Hanging(SpanExporter):
    """Takes nothing until it may."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self._result = result

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        assert spans
        self.began.set()
        assert self.go_on.wait(DEADLINE_S)
        return self._result


def test_spans_without_room_are_dropped_and_counted_while_the_collector_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("QUEUE_SIZE", "4"), ("EXPORT_BATCH_SIZE", "1")):
        monkeypatch.setenv(f"OTEL_BSP_MAX_{name}", value)
    exporter = Hanging()
    provider, exported, _ = providers.tracers(Resource({}), [exporter])
    tracer = provider.get_tracer("tests")
    about = {names.WORKER: "charge"}
    tracer.start_span("first", attributes=about).end()
    assert exporter.began.wait(DEADLINE_S)
    for _ in range(10):
        tracer.start_span("more", attributes=about).end()
    assert exported.of("charge").dropped == 6
    exporter.go_on.set()
    provider.shutdown()
    assert (exported.of("charge").exported, exported.of("charge").refused) == (5, 0)


def test_spans_that_the_collector_does_not_take_are_counted_by_worker() -> None:
    exporter = Hanging(SpanExportResult.FAILURE)
    exporter.go_on.set()
    provider, exported, _ = providers.tracers(Resource({}), [exporter])
    for worker in ("charge", "refund", "charge"):
        span = provider.get_tracer("tests").start_span("x", attributes={names.WORKER: worker})
        span.end()
    provider.get_tracer("tests").start_span("of the handler's own").end()
    provider.shutdown()
    refused = [exported.of(worker).refused for worker in ("charge", "refund", "")]
    assert refused == [2, 1, 1]


class Kept(MetricExporter):
    """Keeps what it is to export, by name."""

    def __init__(self, temporality: AggregationTemporality):
        super().__init__({HistogramInstrument: temporality})
        self.metrics: dict[str, list[Any]] = {}

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        del timeout_millis, kwargs
        for resource in metrics_data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self.metrics[metric.name] = list(metric.data.data_points)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        del timeout_millis
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None: ...


def measures(calls: int, seconds: float) -> Measures:
    counts = [0] * (len(BOUNDS_S) + 1)
    counts[3] = calls
    return Measures(
        WorkerSnapshot(name="charge", group="shop", is_ready=True, silent_s=0.5),
        Counters(delivered=calls, moved_to=Counter({"10s": 2})),
        "key",
        features=FeatureFigures((SpanFigures(7, {"limit": 1, "queue": 3}),)),
        durations=Histogram(tuple(counts), seconds),
    )


@pytest.mark.parametrize(
    "temporality", [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA]
)
def test_metrics_are_those_of_the_list(temporality: AggregationTemporality) -> None:
    now = [measures(10, 1.5)]
    figures, exporter = Figures(), Kept(temporality)
    figures.labels = {"process": "2"}
    provider = providers.meters(Resource({}), [exporter], figures)
    instrument(provider.get_meter(names.SCOPE), figures, METRICS)
    source = InstrumentedWorkers(lambda: list(now), lambda: [measures(12, 2.0)])
    figures.begin(source)
    provider.force_flush()
    (consumed,) = exporter.metrics["messaging.client.consumed.messages"]
    assert dict(consumed.attributes) == {
        "process": "2",
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.consumer.group.name": "shop",
        "window_consumer.worker": "charge",
    }
    assert consumed.value == 10
    (moved,) = exporter.metrics["window_consumer.records.moved"]
    assert dict(moved.attributes) == {"process": "2", "worker": "charge", "level": "10s"}
    dropped = exporter.metrics["window_consumer.telemetry.spans.dropped"]
    assert {point.attributes["reason"]: point.value for point in dropped} == {
        "limit": 1,
        "queue": 3,
    }
    (durations,) = exporter.metrics["messaging.process.duration"]
    assert (durations.count, durations.sum, durations.bucket_counts[3]) == (10, 1.5, 10)
    assert tuple(durations.explicit_bounds) == BOUNDS_S
    figures.end(source)
    provider.force_flush()
    (durations,) = exporter.metrics["messaging.process.duration"]
    is_delta = temporality is AggregationTemporality.DELTA
    assert (durations.count, durations.sum) == ((2, 0.5) if is_delta else (12, 2.0))
    (delivered,) = exporter.metrics["window_consumer.records.delivered"]
    assert delivered.value == 12
    provider.shutdown()


def test_what_is_a_processs_is_added_up_over_its_applications_and_not_over_their_workers() -> None:
    figures, exporter = Figures(), Kept(AggregationTemporality.CUMULATIVE)
    provider = providers.meters(Resource({}), [exporter], figures)
    instrument(provider.get_meter(names.SCOPE), figures, METRICS)
    for lost, blocked_s in ((3, 1.5), (4, 0.0)):
        shared = FeatureFigures((TraceFigures(10, {"disk": lost}, 0, None, blocked_s),))
        reported = [
            evolve(
                measures(1, 0.1), snapshot=WorkerSnapshot(name=f"{name}{lost}"), of_process=shared
            )
            for name in ("charge", "refund")
        ]
        figures.begin(InstrumentedWorkers(reported.copy, reported.copy))
    provider.force_flush()
    (dropped,) = exporter.metrics["window_consumer.trace.dropped"]
    assert (dict(dropped.attributes), dropped.value) == ({"reason": "disk"}, 7)
    (blocked,) = exporter.metrics["window_consumer.trace.blocked"]
    assert (dict(blocked.attributes), blocked.value) == ({}, 1.5)
    provider.shutdown()


def test_what_a_metric_is_called_is_there_once() -> None:
    theirs = [metric.convention.name for metric in METRICS if metric.convention is not None]
    assert len({*theirs, *(metric.name for metric in METRICS)}) == len(theirs) + len(METRICS)


def test_who_was_started_again_is_reported_once() -> None:
    figures = Figures()
    for calls in (1, 2):
        reported = [measures(calls, 0.1)]
        source = InstrumentedWorkers(reported.copy, reported.copy)
        figures.begin(source)
        assert figures.now() == reported
        figures.end(source)
