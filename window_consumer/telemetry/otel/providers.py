"""The SDK's providers, put together; the one place that imports the SDK, with its neighbours."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider

from window_consumer.telemetry.otel.exporting import CountedProcessor, Exported, WithHistograms
from window_consumer.telemetry.otel.ids import Ids
from window_consumer.telemetry.otel.instruments import Figures
from window_consumer.telemetry.otel.spans import GiveIds


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
