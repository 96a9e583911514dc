"""The SDK's providers with their span ids and samplers; with ``exporting``, the only SDK import."""

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

from window_consumer.metrics.otel.exporting import (
    CountedProcessor,
    Exported,
    WithHistograms,
)
from window_consumer.metrics.otel.instruments import Figures
from window_consumer.metrics.otel.spans import RANDOM, GiveIds
from window_consumer.metrics.otel.trace_ids import LOW


class Ids(RandomIdGenerator):
    """Gives random ids, or those that were given to it on this thread."""

    def __init__(self) -> None:
        self._given = threading.local()

    @contextmanager
    def given(self, context: SpanContext) -> Iterator[None]:
        """Let a span that begins a trace within the block have these ids."""
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
        """Tell whether a new trace's id is random; one that follows from a record is not."""
        context: SpanContext | None = getattr(self._given, "context", None)
        return context is None or bool(context.trace_flags & RANDOM)

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        context: SpanContext | None = getattr(self._given, "context", None)
        return super().generate_span_id() if context is None else context.span_id


def resource(application: str) -> Resource:
    """Return who tells: by the variables, else the application, in this very process.

    Counters of several processes of one name must not be taken for one.
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
    """Return a provider of spans, what counts them, and what gives them ids.

    Samplers, limits and batches are as the variables say. It ends when somebody ends it: at the
    interpreter's exit a collector that hangs would be waited for.
    """
    ids, exported = Ids(), Exported()
    provider = TracerProvider(resource=who, id_generator=ids, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(CountedProcessor(exporter, exported))
    return provider, exported, ids.given


def meters(who: Resource, exporters: Sequence[Any], figures: Figures) -> MeterProvider:
    """Return a provider of metrics; readers, such as that for Prometheus, are taken as they are."""
    readers = [
        exporter
        if isinstance(exporter, MetricReader)
        else PeriodicExportingMetricReader(WithHistograms(exporter, figures))
        for exporter in exporters
    ]
    return MeterProvider(readers, resource=who, shutdown_on_exit=False)


def bound_of(sampler: Sampler) -> int | None:
    """Return below what the lower half of a trace's id lies where it is recorded.

    It is that of a trace that begins here: it has no parent to go by. None for samplers that go by
    something else than the id.
    """
    if type(sampler).should_sample is ParentBased.should_sample:
        sampler = sampler._root  # type: ignore[attr-defined]  # noqa: SLF001 - nothing else tells
    if type(sampler) is TraceIdRatioBased:
        return int(sampler.bound)
    if sampler is sampling.ALWAYS_ON:
        return LOW + 1
    return 0 if sampler is sampling.ALWAYS_OFF else None
