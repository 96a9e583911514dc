"""FastStream's two Kafka brokers: on confluent-kafka, and on aiokafka."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from attrs import frozen

from window_consumer import Record, UsageError

CREATE_TIME = 1
"""The type of a timestamp that a producer has set, for both clients."""


class BrokerKind(Protocol):
    """The differences between the brokers."""

    def message_of(self, record: Record) -> Any:
        """Return a record as the broker's client delivers it.

        A copy in the ladder gets the place of its first delivery, which a function may log or keep.
        """

    def options_of(self, subscriber: Any) -> dict[str, Any]:
        """Return a subscriber's options as keys of a worker."""

    def is_batch(self, subscriber: Any) -> bool:
        """Return whether its function takes lists."""


@frozen
class ConfluentMessage:
    """A record with the methods of ``confluent_kafka.Message``, which has no public constructor."""

    record: Record

    def topic(self) -> str:
        """Return the topic of the first delivery."""
        return self.record.origin.topic

    def partition(self) -> int:
        """Return the partition of the first delivery."""
        return self.record.origin.partition

    def offset(self) -> int:
        """Return the offset of the first delivery."""
        return self.record.origin.offset

    def key(self) -> bytes | None:
        """Return the key."""
        return self.record.key

    def value(self) -> bytes | None:
        """Return the value."""
        return self.record.value

    def headers(self) -> list[tuple[str, bytes]]:
        """Return the headers. FastStream decodes each value, so none is None."""
        return headers_of(self.record)

    def timestamp(self) -> tuple[int, int]:
        """Return the type and milliseconds since 1970."""
        milliseconds = self.record.timestamp
        return (0, 0) if milliseconds is None else (CREATE_TIME, milliseconds)

    def error(self) -> None:
        """Return None: it is a record."""

    def __len__(self) -> int:
        """Return the bytes of the value."""
        return len(self.record.value or b"")


class ConfluentKind:
    """``faststream.confluent``."""

    def message_of(self, record: Record) -> ConfluentMessage:
        """See BrokerKind."""
        return ConfluentMessage(record)

    def options_of(self, subscriber: Any) -> dict[str, Any]:
        """See BrokerKind."""
        connection = subscriber._LogicSubscriber__connection_data  # noqa: SLF001 - no other name
        options = common_options(subscriber, connection["auto_offset_reset"])
        if self.is_batch(subscriber):
            options |= batch_options(subscriber, subscriber.polling_interval * 1000)
        return options

    def is_batch(self, subscriber: Any) -> bool:
        """See BrokerKind."""
        from faststream.confluent.subscriber.usecase import BatchSubscriber  # noqa: PLC0415 - may be missing

        return isinstance(subscriber, BatchSubscriber)


class AioKafkaKind:
    """``faststream.kafka``."""

    def message_of(self, record: Record) -> Any:
        """See BrokerKind."""
        from aiokafka import ConsumerRecord  # noqa: PLC0415 - may be missing

        origin = record.origin
        value, key = record.value, record.key
        return ConsumerRecord(
            topic=origin.topic,
            partition=origin.partition,
            offset=origin.offset,
            timestamp=-1 if record.timestamp is None else record.timestamp,
            timestamp_type=CREATE_TIME,
            key=key,
            value=value,
            checksum=None,
            serialized_key_size=-1 if key is None else len(key),
            serialized_value_size=-1 if value is None else len(value),
            headers=tuple(headers_of(record)),
        )

    def options_of(self, subscriber: Any) -> dict[str, Any]:
        """See BrokerKind."""
        options = common_options(subscriber, subscriber._connection_args["auto_offset_reset"])  # noqa: SLF001 - no other name
        if self.is_batch(subscriber):
            options |= batch_options(subscriber, subscriber.batch_timeout_ms)
        return options

    def is_batch(self, subscriber: Any) -> bool:
        """See BrokerKind."""
        from faststream.kafka.subscriber.usecase import BatchSubscriber  # noqa: PLC0415 - may be missing

        return isinstance(subscriber, BatchSubscriber)


_KINDS: dict[str, BrokerKind] = {
    "faststream.confluent": ConfluentKind(),
    "faststream.kafka": AioKafkaKind(),
}


def kind_of(broker: Any) -> BrokerKind:
    """Return a broker's kind. Raises UsageError for brokers of other systems and other objects."""
    for module, kind in _KINDS.items():
        known = sys.modules.get(module)  # imported already if the broker belongs to it
        if known is not None and isinstance(broker, known.KafkaBroker):
            return kind
    given = f"{type(broker).__module__}.{type(broker).__qualname__}"
    raise UsageError(
        f"worker_of takes a KafkaBroker of faststream.confluent or faststream.kafka, not a {given}"
    )


def headers_of(record: Record) -> list[tuple[str, bytes]]:
    """Return a record's headers, with empty values instead of None."""
    return [(name, value or b"") for name, value in record.headers]


def common_options(subscriber: Any, offset_reset: str) -> dict[str, Any]:
    """Return the options of both kinds of subscribers as keys of a worker."""
    from faststream import AckPolicy  # noqa: PLC0415 - may be missing

    blocks = subscriber.ack_policy is AckPolicy.NACK_ON_ERROR
    return {
        "concurrency": getattr(subscriber, "max_workers", None),
        "on_no_offset": "fail" if offset_reset == "none" else offset_reset,
        "retry": {"on_failure": "block" if blocks else "overtake"},
    }


def batch_options(subscriber: Any, wait_ms: float) -> dict[str, Any]:
    """Return the size and wait of batches as keys of a worker."""
    return {"max_records": subscriber.max_records, "max_wait": f"{max(1, round(wait_ms))}ms"}
