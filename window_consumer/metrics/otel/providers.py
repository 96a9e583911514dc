"""The SDK's providers with their ids and samplers; only ``exporting`` imports the SDK too."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanContext

from window_consumer.metrics.otel.exporting import CountedProcessor, Exported, WithHistograms
from window_consumer.metrics.otel.instruments import Figures
from window_consumer.metrics.otel.spans import RANDOM, GiveIds
from window_consumer.metrics.otel.trace_ids import LOW


class Ids(RandomIdGenerator):
    """Generates random ids, or returns those given on this thread."""

    def __init__(self) -> None:
        self._given = threading.local()

    @contextmanager
    def given(self, context: SpanContext) -> Iterator[None]:
        """Give these ids to a span that begins a trace within the block."""
        self._given.context = context
        try:
            yield
        finally:
            self._given.context = None

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        context: SpanContext | None = getattr(self._given, "context", None)
        return super().generate_trace_id() if context is None else context.trace_id

    def is_trace_id_random(self) -> bool:
        """Return whether a new trace's id is random; an id derived from a record is not."""
        context: SpanContext | None = getattr(self._given, "context", None)
        return context is None or bool(context.trace_flags & RANDOM)

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        context: SpanContext | None = getattr(self._given, "context", None)
        return super().generate_span_id() if context is None else context.span_id


def resource(application: str) -> Resource:
    """Return the reporting service: the variables', or the application in this process.

    Counters of several processes with one name must not be taken for one.
    """
    given = Resource.create().attributes
    named = "OTEL_SERVICE_NAME" in os.environ or not str(given.get(SERVICE_NAME, "")).startswith(
        "unknown_service"
    )
    ours: dict[str, str] = {} if named else {SERVICE_NAME: application}
    if SERVICE_INSTANCE_ID not in given:
        ours[SERVICE_INSTANCE_ID] = str(uuid.uuid4())
    return Resource.create().merge(Resource(ours))


def tracers(who: Resource, exporters: Sequence[Any]) -> tuple[TracerProvider, Exported, GiveIds]:
    """Return a provider of spans, its counts, and the function that gives it ids.

    Samplers, limits and batches follow the variables. The caller must shut it down: at the
    interpreter's exit, it would wait for a hanging collector.
    """
    ids, exported = Ids(), Exported()
    provider = TracerProvider(resource=who, id_generator=ids, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(CountedProcessor(exporter, exported))
    return provider, exported, ids.given


def meters(who: Resource, exporters: Sequence[Any], figures: Figures) -> MeterProvider:
    """Return a provider of metrics; readers, such as Prometheus' one, are used as they are."""
    readers = [
        exporter
        if isinstance(exporter, MetricReader)
        else PeriodicExportingMetricReader(WithHistograms(exporter, figures))
        for exporter in exporters
    ]
    return MeterProvider(readers, resource=who, shutdown_on_exit=False)


def bound_of(sampler: Sampler) -> int | None:
    """Return the bound below which the lower half of a recorded trace's id lies.

    It applies to traces that begin here, without a parent. None for samplers that do not decide by
    id.
    """
    if type(sampler).should_sample is ParentBased.should_sample:
        sampler = sampler._root  # type: ignore[attr-defined] # noqa: SLF001 - there is no public way
    if type(sampler) is TraceIdRatioBased:
        return int(sampler.bound)
    if sampler is sampling.ALWAYS_ON:
        return LOW + 1
    return 0 if sampler is sampling.ALWAYS_OFF else None
