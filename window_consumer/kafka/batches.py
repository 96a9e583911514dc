"""The output of the client's consume: records of several partitions, and errors between them.

The client's ``Message.headers()`` (2.16) raises SystemError for a header name that is not UTF-8. A
second call then returns a value that holds a NULL and crashes the process. So it is called once per
record, on the thread that read the record, and its broken result is replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import compress, repeat
from operator import eq, length_hint
from typing import Any, TypeVar

from confluent_kafka import KafkaError, Message

from window_consumer.model.headers import LostHeaders
from window_consumer.model.protocols import Batch
from window_consumer.model.record import Message as AnyMessage
from window_consumer.model.record import TopicPartition

# Functions of the message's class, for map: half the cost of calling each message's method.
_error_of: Callable[[Any], KafkaError | None] = Message.error
_partition_of: Callable[[Any], int] = Message.partition  # type: ignore[assignment] # records have one
_topic_of: Callable[[Any], str] = Message.topic  # type: ignore[assignment] # records have one

_FIRST_CHECK = 256
"""The search for the end of a run checks this many records first, then four times as many."""

Key = TypeVar("Key", int, tuple[str, int])


def has_errors(batch: Sequence[Any]) -> bool:
    """Return whether the batch contains an error."""
    return any(map(_error_of, batch))


def drop(gathered: dict[TopicPartition, Any], names: Collection[TopicPartition]) -> None:
    """Remove these partitions from ``gathered``."""
    for name in names:
        gathered.pop(name, None)


class Names:
    """Splits batches, and keeps the partitions' names so that each is created once."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], TopicPartition] = {}

    def of(self, topic: str, partition: int) -> TopicPartition:
        """Return a partition's name."""
        key = (topic, partition)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = TopicPartition(topic, partition)
        return name

    def add(
        self,
        gathered: dict[TopicPartition, Batch],
        batch: list[AnyMessage],
        topics: Collection[str],
    ) -> None:
        """Add records to their partitions.

        ``topics`` are all topics of which the client was ever assigned a partition. The
        subscription is not enough: a topic's last records arrive after it has changed.
        """
        if not batch:
            return
        partitions = list(map(_partition_of, batch))
        if len(topics) == 1:
            (topic,) = topics
            runs = [(self.of(topic, p), run) for p, run in _split(batch, partitions)]
        else:
            keys = list(zip(map(_topic_of, batch), partitions, strict=True))
            runs = [(self.of(*key), run) for key, run in _split(batch, keys)]
        for name, run in runs:
            before = gathered.get(name)
            if before is None:
                gathered[name] = Batch.of(name, run)
            else:
                before.add(run)


def _split(batch: list[AnyMessage], keys: list[Key]) -> Iterator[tuple[Key, list[AnyMessage]]]:
    """Yield runs of records with one key, in order. A key may have several runs.

    A key's records are nearly always adjacent. All work per record is done in C, because it happens
    a million times a second.
    """
    start, end = 0, len(keys)
    while start < end:
        stop = _end_of_run(keys, start)
        if stop < 0:
            rest, their_keys = batch[start:], keys[start:]
            for key in dict.fromkeys(their_keys):
                yield key, list(compress(rest, map(eq, their_keys, repeat(key))))
            return
        yield keys[start], batch[start:stop] if stop - start < end else batch
        start = stop


def _end_of_run(keys: list[Key], start: int) -> int:
    """Return where the run that begins at ``start`` ends, or -1 where keys are mixed."""
    key, end, stop, step = keys[start], len(keys), start, _FIRST_CHECK
    while stop < end:
        piece = keys[stop : stop + step]
        same = piece.count(key)
        if same < len(piece):
            return stop + same if piece[:same].count(key) == same else -1
        stop += same
        step *= 4
    return stop


_headers_of: Callable[[Any], object] = Message.headers


def read_headers(records: Sequence[Any]) -> list[Any]:
    """Read the headers of records for the first time; return the records with unreadable headers.

    These have ``LostHeaders`` from now on. Errors between the records have no headers.
    """
    lost: list[Any] = []
    left = iter(records)
    while length_hint(left):
        try:
            # Iterate in C: most records have no headers and cost 30 ns each.
            deque(map(_headers_of, left), maxlen=0)
        except (SystemError, UnicodeDecodeError):
            record = records[len(records) - length_hint(left) - 1]
            record.set_headers(LostHeaders.new())
            lost.append(record)
    return lost
