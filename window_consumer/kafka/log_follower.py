"""Follows a whole topic beyond its end: each call reads the records since the last one.

The partitions stay assigned, and one request returns all of their ends. Assigning them again for
each call would cost two requests a partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors
from window_consumer.kafka.batches import read_headers
from window_consumer.kafka.topic_reader import TopicReader, in_our_words
from window_consumer.model.errors import BrokerUnavailableError
from window_consumer.model.record import Message, TopicPartition

LogEnds = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns the ends of logs, for readers of committed records; raises a WindowConsumerError."""

_BATCH: Final = 1_000
_POLL_S: Final = 0.05
_STILL_S: Final = 10.0
"""How long nothing may arrive although more records exist."""

_PARTITIONS_S: Final = 60.0
"""How often it looks for further partitions."""

_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - local error codes begin with an underscore


class LogFollower:
    """Reads one topic repeatedly. Owner: the reader's thread."""

    def __init__(self, reader: TopicReader, topic: str, log_ends: LogEnds):
        self._reader = reader
        self._topic = topic
        self._log_ends = log_ends
        self._positions: dict[TopicPartition, int] = {}
        """The next offset of each assigned partition."""
        self._look_at = 0.0

    def start_over(self) -> None:
        """Read the topic from its beginning, because it was recreated."""
        self._positions.clear()
        self._look_at = 0.0
        self._reader.consumer.unassign()

    def to_the_end(self) -> Iterator[list[Message]]:
        """Yield the records after those of the last call, up to the current ends of the logs.

        Raise MissingTopicError, and BrokerUnavailableError if nothing arrives.
        """
        ends = self._ends()
        deadline = time.monotonic() + _STILL_S
        while any(self._positions[name] < end for name, end in ends.items()):
            with in_our_words(self._topic):
                chunk = self._reader.consumer.consume(_BATCH, 0)
                chunk = chunk or self._reader.consumer.consume(1, _POLL_S)
            if chunk:
                deadline = time.monotonic() + _STILL_S
                if records := self._taken(chunk):
                    yield records
            elif time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{self._topic}: nothing arrived for {_STILL_S:g} s")

    def _ends(self) -> Mapping[TopicPartition, int]:
        if time.monotonic() >= self._look_at:
            new = set(self._reader.partitions(self._topic)) - self._positions.keys()
            self._assign(sorted(new))
            self._look_at = time.monotonic() + _PARTITIONS_S
        ends = self._log_ends(list(self._positions))
        if any(self._positions[name] > end for name, end in ends.items()):
            self.start_over()
            self._assign(list(ends))
        return ends

    def _assign(self, names: Sequence[TopicPartition]) -> None:
        if names:
            partitions = [ClientPartition(*name, OFFSET_BEGINNING) for name in names]
            with in_our_words(self._topic):
                self._reader.consumer.incremental_assign(partitions)
            self._positions.update(dict.fromkeys(names, 0))

    def _taken(self, chunk: Sequence[Any]) -> list[Message]:
        """Return the records of a chunk; learn positions from them and from ends of partitions."""
        records: list[Message] = []
        for each in chunk:
            name, offset = TopicPartition(each.topic(), each.partition()), each.offset()
            error = each.error()
            if error is None:
                records.append(each)
                self._positions[name] = offset + 1
            elif error.code() == _EOF:
                # The last offsets may be transaction markers, or compacted away.
                self._positions[name] = max(self._positions.get(name, 0), offset)
            elif not errors.is_absence(error):
                raise errors.translate(error, str(name))
        read_headers(records)
        return records
