"""The names of attributes: OpenTelemetry's conventions for messaging, and our own beside them.

https://opentelemetry.io/docs/specs/semconv/messaging/kafka/
"""

from __future__ import annotations

from typing import Final

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
"""What a copy was made of, as in orders[3]@17."""
LINKS_LEFT_OUT: Final = "window_consumer.links_left_out"
