"""Reading whole topics, without a group and without changing anything: for tests and checkers.

It works on any broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors
from window_consumer.kafka.batches import read_headers
from window_consumer.model.errors import (
    BrokerUnavailableError,
    MissingTopicError,
    RunError,
)
from window_consumer.model.record import Message

_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - local error codes begin with an underscore
_GROUP_DENIED = KafkaError.GROUP_AUTHORIZATION_FAILED
"""The client always looks for the coordinator of its group; we do not need one."""

_BATCH = 1_000
_POLL_S = 0.1


def partitions(client: Mapping[str, Any], topic: str, timeout_s: float = 10.0) -> int:
    """Return how many partitions a topic has; raises MissingTopicError, or a RunError."""
    with _consumer(client, topic) as consumer:
        return _partitions(consumer, topic, timeout_s)


def offsets(
    client: Mapping[str, Any], topic: str, timeout_s: float = 10.0
) -> dict[int, tuple[int, int]]:
    """Return each partition's first offset and its end (exclusive).

    ``client`` holds librdkafka's settings, bootstrap.servers at least. Raises MissingTopicError,
    or a RunError where the cluster does not answer.
    """
    with _consumer(client, topic) as consumer:
        return _offsets(consumer, topic, timeout_s)


def read_all(client: Mapping[str, Any], topic: str, timeout_s: float = 10.0) -> list[Message]:
    """Return all records up to the present end of a topic, by partition and offset.

    ``client`` and errors are those of ``offsets``. Raises BrokerUnavailableError where the end
    was not reached in time.
    """
    deadline = time.monotonic() + timeout_s
    found: list[Message] = []
    with _consumer(client, topic) as consumer:
        ranges = _offsets(consumer, topic, timeout_s)
        waiting = {partition for partition, (first, end) in ranges.items() if end > first}
        consumer.assign([ClientPartition(topic, each, ranges[each][0]) for each in waiting])
        while waiting:
            if time.monotonic() >= deadline:
                raise BrokerUnavailableError(
                    f"{topic}: read {len(found)} records in {timeout_s:g} s, but not to the end"
                    f" of partitions {sorted(waiting)}"
                )
            # A single call would wait for a whole batch to come together.
            for message in consumer.consume(1, _POLL_S) + consumer.consume(_BATCH, 0):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == _EOF:
                    waiting.discard(message.partition() or 0)
                elif not errors.is_absence(error) and error.code() != _GROUP_DENIED:
                    raise errors.translate(error, topic)
    read_headers(found)
    return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))


@contextmanager
def _consumer(client: Mapping[str, Any], topic: str) -> Iterator[Consumer]:
    """Lend a consumer that joins no group; the client's errors are raised as ours."""
    ours = {
        "group.id": "wc-reading",
        "client.id": "wc-reading",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 10,
        "log_level": 0,
    }
    consumer = Consumer({**ours, **client})
    try:
        yield consumer
    except KafkaException as exception:
        error = errors.cause_of(exception)
        if error is None:
            raise RunError(f"{topic}: {exception}") from exception
        raise errors.translate(error, topic) from exception
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str, timeout_s: float) -> int:
    metadata = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    if metadata.error is not None:
        raise errors.translate(metadata.error, topic)
    count = len(metadata.partitions)
    if count == 0:
        raise MissingTopicError(f"{topic} does not exist")
    return count


def _offsets(consumer: Consumer, topic: str, timeout_s: float) -> dict[int, tuple[int, int]]:
    found = {}
    for partition in range(_partitions(consumer, topic, timeout_s)):
        answer = _range(consumer, ClientPartition(topic, partition), timeout_s)
        if answer is None:
            raise BrokerUnavailableError(f"{topic}[{partition}]: no answer in {timeout_s:g} s")
        found[partition] = answer
    return found


def _range(consumer: Consumer, name: ClientPartition, timeout_s: float) -> tuple[int, int] | None:
    """Ask for a partition's range, again while the partition is so new that nobody leads it."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return consumer.get_watermark_offsets(name, timeout=timeout_s, cached=False)
        except KafkaException as exception:
            error = errors.cause_of(exception)
            is_new = error is not None and errors.is_leader_moving(error)
            if not is_new or time.monotonic() >= deadline:
                raise
        consumer.poll(_POLL_S)
