"""Wires OpenTelemetry: observers of slices, spans around calls, also in child processes.

The command line sets up the SDK with ``set_up`` before anything starts. A program that starts an
application itself sets up its own providers, or calls ``set_up`` too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import Section, about
from window_consumer.engine.observer import Observer
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.metrics import catalog
from window_consumer.metrics.otel import attributes as names
from window_consumer.metrics.otel import sdk
from window_consumer.metrics.otel.call_spans import OtelCallSpans
from window_consumer.metrics.otel.environment import missing_files
from window_consumer.metrics.otel.instruments import InstrumentedWorkers
from window_consumer.metrics.otel.metrics import METRICS, SpanFigures
from window_consumer.metrics.otel.slice_spans import NoteTaker, SliceSpans
from window_consumer.metrics.otel.spans import SpanBudget, SpanCounts, Spans
from window_consumer.metrics.otel.trace_ids import Traces
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.feature import AppStart, Feature
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.runtime.calls.layer import CallLayer
from window_consumer.runtime.calls.spans import SpansLayer
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.figures.measures import MeasuredWorkers
from window_consumer.runtime.figures.metric import Metric

_CHILD_FLUSH_S: Final = 0.5
"""Short, because a child is killed soon after it was asked to end."""


@frozen(kw_only=True)
class OpenTelemetryConfig:
    """Which data goes to OpenTelemetry, if its OTEL_* variables request it."""

    metrics: bool = field(
        default=True,
        metadata=about(
            "Whether metrics are exported.",
            kind=kinds.boolean(),
            reason="a process with OTEL_METRICS_EXPORTER or an endpoint wants them",
        ),
    )
    spans: bool = field(
        default=True,
        metadata=about(
            "Whether spans are exported: of each slice, with links to the producers' spans, and "
            "of each record whose producer's trace is sampled.",
            kind=kinds.boolean(),
            reason="a process with OTEL_TRACES_EXPORTER or an endpoint wants them",
        ),
    )
    records: float = field(
        default=0.0,
        metadata=about(
            "The share of the other records that also get their own spans. The choice is the "
            "same for all calls of a record, also in retry topics.",
            kind=kinds.percent(0.0, 1.0),
            reason="the place where a trace begins decides whether to record it",
        ),
    )
    spans_per_second: int = field(
        default=200,
        metadata=about(
            "The most spans per second, separately for each worker's slices and its records (with "
            "pool: processes, for each process's records). Further spans are dropped and counted.",
            kind=kinds.whole_number(1, 1_000_000),
            reason="a span takes 0.1 to 0.2 ms of a processor, including its export",
        ),
    )


class Spanning(RunningFeature):
    """Creates the spans of all workers of a process."""

    def __init__(self, application: str, plan: AppPlan, providers: sdk.Sdk, notes: NoteTaker):
        self._application = application
        self._plan = plan
        self._providers = providers
        self._notes = notes
        self._kinds: dict[str, _OfWorker] = {}

    def observer_of(self, worker: PreparedWorker) -> Observer:
        """Return the observer that records a worker's slices and copies."""
        of_worker = self._of(worker.plan)

        def target_of(failed: FailedRecord) -> str:
            if failed.forward is not None:
                return failed.forward.copy.topic
            return worker.ladders[failed.partition.retry_level.source].target(failed.level).topic

        return SliceSpans(of_worker.spans, of_worker.budget(), self._notes, target_of)

    def layers_of(self, worker: PreparedWorker) -> Sequence[CallLayer]:
        """Return the layer of spans."""
        return [self.layer_of(worker.plan)]

    def layer_of(self, worker: PlannedWorker) -> SpansLayer:
        """Return the layer that surrounds a worker's calls with spans."""
        config = self._plan.config.section(OpenTelemetryConfig)
        sets_up = self._providers.tracers is not None
        child = SpansOfChild(self._application, sets_up, attributes_of(worker), config)
        return SpansLayer(self._of(worker).calls_of, child)

    def figures_of(self, worker: str) -> SpanFigures | None:
        """Return the figures of the worker's spans in this process."""
        of_worker = self._kinds.get(worker)
        if of_worker is None:
            return None
        counts, exported = of_worker.counts, self._providers.exported
        dropped = {"limit": counts.left_out, "failed": counts.lost}
        if exported is not None:
            found = exported.of(worker)
            dropped |= {"queue": found.dropped, "refused": found.refused}
        return SpanFigures(counts.made, dropped)

    def _of(self, worker: PlannedWorker) -> _OfWorker:
        if worker.name not in self._kinds:
            about = attributes_of(worker)
            config = self._plan.config.section(OpenTelemetryConfig)
            self._kinds[worker.name] = _of_worker(self._providers, about, config)
        return self._kinds[worker.name]


@frozen
class _OfWorker:
    spans: Spans
    counts: SpanCounts
    per_second: int

    def calls_of(self, faults: ErrorReports) -> OtelCallSpans:
        """Return the factory of spans for calls."""
        return OtelCallSpans(self.spans, self.budget(), faults.fault)

    def budget(self) -> SpanBudget:
        """Return a new budget: slices and records have one each."""
        return SpanBudget(self.per_second, self.counts)


def _of_worker(providers: sdk.Sdk, about: dict[str, Any], config: OpenTelemetryConfig) -> _OfWorker:
    tracer = providers.tracer()
    assert tracer is not None  # the caller has checked
    traces = Traces(about[names.GROUP], config.records, providers.keeps())
    spans = Spans(tracer, traces, about, providers.give_ids, providers.bound())
    return _OfWorker(spans, SpanCounts(), config.spans_per_second)


def attributes_of(worker: PlannedWorker) -> dict[str, Any]:
    """Return the attributes of all spans of a worker."""
    about: dict[str, Any] = {
        names.SYSTEM: "kafka",
        names.GROUP: worker.config.group,
        names.WORKER: worker.name,
    }
    client = worker.consumer.get("client.id")
    return about if client is None else {**about, names.CLIENT: str(client)}


@contextmanager
def spanning(application: str, plan: AppPlan, providers: sdk.Sdk) -> Iterator[Spanning | None]:
    """Yield the factory of spans, None if none are wanted; send the rest at the end."""
    if not plan.config.section(OpenTelemetryConfig).spans or providers.tracer() is None:
        yield None
        return
    notes = NoteTaker()
    try:
        yield Spanning(application, plan, providers, notes)
    finally:
        notes.end(sdk.FLUSH_S)


@contextmanager
def metering(
    plan: AppPlan, workers: MeasuredWorkers, metrics: Iterable[Metric], providers: sdk.Sdk
) -> Iterator[None]:
    """Report the metrics to OpenTelemetry during the block, if any are wanted."""
    is_wanted = plan.config.section(OpenTelemetryConfig).metrics
    figures = providers.measure(metrics) if is_wanted else None
    if figures is None:
        yield
        return

    def measure() -> list[Any]:
        workers.run_periodic()
        return workers.measures()

    figures.labels = workers.labels
    source = InstrumentedWorkers(measure, lambda: workers.measures(with_windows=False))
    figures.begin(source)
    try:
        yield
    finally:
        figures.end(source)


class OpenTelemetryFeature(Feature):
    """Metrics and spans for OpenTelemetry."""

    name = "opentelemetry"
    section = Section(
        "opentelemetry",
        OpenTelemetryConfig,
        "Which data goes to OpenTelemetry, if its OTEL_* variables request it.",
    )
    metrics = METRICS

    def warnings(self, plan: AppPlan) -> Iterator[str]:
        """Yield a sentence for each unreadable file that a variable names for OTLP."""
        del plan
        return missing_files(os.environ)

    def set_up(self, application: str) -> Callable[[float], None]:
        """Set up the SDK as the variables request, see ``sdk.set_up``."""
        opentelemetry = sdk.set_up(application)
        return lambda left_s: opentelemetry.end(min(sdk.FLUSH_S, left_s))

    @contextmanager
    def starting(self, start: AppStart) -> Iterator[RunningFeature | None]:
        """Report metrics and create spans, if any are wanted."""
        plan, providers = start.plan, sdk.OF_THIS_PROCESS
        metrics = (*catalog.METRICS, *start.metrics)
        spanned = spanning(start.application, plan, providers)
        with metering(plan, start.workers, metrics, providers), spanned as spans:
            yield spans


@frozen
class SpansOfChild:
    """The settings of spans for a child process. Pickled."""

    application: str
    """The service's name if no variable gives one."""
    sets_up: bool
    """Whether the parent has set up the SDK, so that the child must, too."""
    about: dict[str, Any]
    config: OpenTelemetryConfig

    def begin(self) -> SpansLayer | None:
        """Return the layer of spans in the child, or None if nothing exports them."""
        providers = sdk.OF_THIS_PROCESS
        if self.sets_up:
            sdk.set_up(self.application, spans_only=True)
        if providers.tracer() is None:
            return None
        return SpansLayer(_of_worker(providers, self.about, self.config).calls_of)

    @staticmethod
    @contextmanager
    def around(lifespan: AbstractContextManager[Any]) -> Iterator[Any]:
        """Enter a child's lifespan, and send the remaining spans after it."""
        try:
            with lifespan as state:
                yield state
        finally:
            sdk.OF_THIS_PROCESS.end(_CHILD_FLUSH_S)
