"""Writes records in few large batches, and waits until they are acked."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, Message, Producer

from window_consumer.kafka import errors
from window_consumer.kafka.embedded.capacity import KEPT_BYTES, NewRecord
from window_consumer.model.record import TopicPartition

_ACK_MS = 10_000


def write(
    bootstrap: str, records: Iterable[tuple[TopicPartition, NewRecord]]
) -> list[tuple[int, int]]:
    """Write records, wait for the acks and return the acked partitions and offsets.

    Raises a RunError if a record is not acked within 10 s.
    """
    written: list[tuple[int, int]] = []
    failed: dict[TopicPartition, KafkaError] = {}

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        partition = message.partition() or 0
        if error is None:
            written.append((partition, message.offset() or 0))
        else:
            failed[TopicPartition(message.topic() or "", partition)] = error

    producer = Producer(_settings(bootstrap))
    try:
        for name, record in records:
            producer.produce(
                name.topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=name.partition,
                on_delivery=on_delivery,
            )
        producer.flush()
    finally:
        producer.close()
    for name, error in failed.items():
        raise errors.translate(error, f"{name}, after {len(written):,} records were written")
    return written


def _settings(bootstrap: str) -> dict[str, str | int]:
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "acks": "all",
        "message.timeout.ms": _ACK_MS,
        "message.max.bytes": KEPT_BYTES,
        "queue.buffering.max.messages": 0,  # unbounded: the caller bounds what is sent
        "queue.buffering.max.kbytes": 2_147_483_647,
        "linger.ms": 1_000,  # a batch ends when it is full, or when everything is sent
        "max.in.flight.requests.per.connection": 1,  # so that a retry does not overtake
    }
