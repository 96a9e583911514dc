"""What the client's consume returns: records of several partitions, and errors between them.

The client's ``Message.headers()`` (2.16) raises SystemError at a header name that is not UTF-8,
and what a second call returns holds a NULL that crashes the process. So it is called once per
record, on the thread that read it, and what it left behind is replaced.
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

# Functions of the message's class, for map: half the price of calling each message's method.
_error_of: Callable[[Any], KafkaError | None] = Message.error
_partition_of: Callable[[Any], int] = Message.partition  # type: ignore[assignment] # records have one
_topic_of: Callable[[Any], str] = Message.topic  # type: ignore[assignment] # records have one

_FIRST_CHECK = 256
"""So many records are looked at first for where a run ends, then four times as many."""

Key = TypeVar("Key", int, tuple[str, int])


def has_errors(batch: Sequence[Any]) -> bool:
    """Tell whether something in the batch is no record."""
    return any(map(_error_of, batch))


def drop(gathered: dict[TopicPartition, Any], names: Collection[TopicPartition]) -> None:
    """Drop what was gathered of partitions."""
    for name in names:
        gathered.pop(name, None)


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

    def add(
        self,
        gathered: dict[TopicPartition, Batch],
        batch: list[AnyMessage],
        topics: Collection[str],
    ) -> None:
        """Add records to those of their partitions.

        ``topics`` are all that the client was ever assigned partitions of. What it subscribes to
        does not tell: a topic's last records come when the subscription has changed already.
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
    """Yield runs of records of one key; those of a key, whose runs may be several, in their order.

    A key's records nearly always stand together. Everything that is done for each record is done
    in C: it is done a million times a second.
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
    """Return where the run of the key at ``start`` ends, -1 where keys are mixed up there."""
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
    """Read the headers of records for the first time; return the records that have lost theirs.

    Those have ``LostHeaders`` from now on. Errors, which stand between records, have none.
    """
    lost: list[Any] = []
    left = iter(records)
    while length_hint(left):
        try:
            # In C from one to the next: most records have none, and cost 30 ns each.
            deque(map(_headers_of, left), maxlen=0)
        except (SystemError, UnicodeDecodeError):
            record = records[len(records) - length_hint(left) - 1]
            record.set_headers(LostHeaders.new())
            lost.append(record)
    return lost
