"""What the client's consume returns: records of several partitions, and errors between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from confluent_kafka import KafkaError, Message

from window_consumer.model.record import Message as AnyMessage
from window_consumer.model.record import TopicPartition

# Functions of the message's class, for map: half the price of calling each message's method.
_error_of: Callable[[Any], KafkaError | None] = Message.error
_partition_of: Callable[[Any], int] = Message.partition  # type: ignore[assignment] # records have one
_topic_of: Callable[[Any], str] = Message.topic  # type: ignore[assignment] # records have one

Batches = Sequence[tuple[TopicPartition, list[AnyMessage]]]


def has_errors(batch: Sequence[Any]) -> bool:
    """Tell whether something in the batch is no record."""
    return any(map(_error_of, batch))


def without(batch: Sequence[Any], names: Collection[TopicPartition]) -> list[Any]:
    """Return what does not belong to these partitions, errors included."""
    return [each for each in batch if (each.topic(), each.partition()) not in names]


class Names:
    """Splits batches, and keeps the partitions' names so that they are made once."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], TopicPartition] = {}

    def of(self, topic: str, partition: int) -> TopicPartition:
        """Return a partition's name."""
        key = (topic, partition)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = TopicPartition(topic, partition)
        return name

    def by_partition(self, batch: list[AnyMessage], topics: Sequence[str]) -> Batches:
        """Split records, given what the client reads; nearly always all are of one partition."""
        if not batch:
            return ()
        partitions = list(map(_partition_of, batch))
        if len(topics) == 1:
            if partitions.count(partitions[0]) == len(batch):
                return ((self.of(topics[0], partitions[0]), batch),)
            topic_of_each: Sequence[str] = [*topics] * len(batch)
        else:
            topic_of_each = list(map(_topic_of, batch))
        runs: dict[tuple[str, int], list[AnyMessage]] = {}
        for topic, partition, message in zip(topic_of_each, partitions, batch, strict=True):
            run = runs.get((topic, partition))
            if run is None:
                runs[topic, partition] = [message]
            else:
                run.append(message)
        return [(self.of(*key), run) for key, run in runs.items()]
