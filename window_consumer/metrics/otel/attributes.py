"""Names of attributes (OpenTelemetry's messaging conventions, and ours), and propagation.

https://opentelemetry.io/docs/specs/semconv/messaging/kafka/

OpenTelemetry reads ``OTEL_PROPAGATORS`` on import and raises if one is not installed. A worker then
runs anyway, with W3C propagation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SCOPE: Final = "window_consumer"
"""The instrumentation scope of all spans and metrics."""

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
GROUP: Final = "messaging.consumer.group.name"
CLIENT: Final = "messaging.client.id"
OFFSET: Final = "messaging.kafka.offset"
TOMBSTONE: Final = "messaging.kafka.message.tombstone"
BODY_SIZE: Final = "messaging.message.body.size"
MESSAGE_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"

WORKER: Final = "window_consumer.worker"
HANDLER: Final = "window_consumer.handler"
ATTEMPT: Final = "window_consumer.attempt"
LAST_OFFSET: Final = "window_consumer.last_offset"
FAILED: Final = "window_consumer.failed"
"""How many calls, or records of a batch, have failed."""
OUTCOME: Final = "window_consumer.outcome"
REASON: Final = "window_consumer.reason"
SOURCE: Final = "window_consumer.source"
"""The record that was copied, such as orders[3]@17."""
LINKS_LEFT_OUT: Final = "window_consumer.links_left_out"


def _found() -> tuple[Callable[[], TextMapPropagator], str]:
    try:
        from opentelemetry import propagate  # noqa: PLC0415 - the import itself may raise
    except Exception as error:
        # A propagator's module may raise anything; telemetry must not keep a worker from running.
        ours = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
        return lambda: ours, str(error) or type(error).__name__
    return propagate.get_global_textmap, ""


_FOUND: Final = _found()

WHY_NOT_AS_ASKED: Final = _FOUND[1]
"""Why the variable is ignored; empty if it is not."""


def propagator() -> TextMapPropagator:
    """Return the current propagator of headers; an application may have replaced it."""
    return _FOUND[0]()
