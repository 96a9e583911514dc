"""A task's records, built from rows of Spark's Kafka source or from the client's messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

from window_consumer.model.errors import UsageError
from window_consumer.model.headers import LostHeaders
from window_consumer.model.record import Message, TopicPartition
from window_consumer.runtime.pools.processes.serialization import ReceivedMessage, Row

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("partition", "offset", "key", "value", "headers", "time_ms", "time_kind")
"""The input columns of tasks: those of Spark's Kafka source, with the time as two numbers."""

_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
"""Java's replacement for bytes of a name that are not UTF-8."""

Headers = list[tuple[str, bytes | None]] | None


class TaskMessage(ReceivedMessage):
    """A record in a task, with the number and duration of its handler calls."""

    # Set by ``_made``, like the parent's: calling __init__ takes longer than all the rest.
    __slots__ = ("calls", "took_s")
    calls: int
    took_s: float
    """The duration of all calls. A batch's call counts for each of its records."""


def messages_of(
    batch: pa.RecordBatch, topic: str
) -> Iterator[tuple[TopicPartition, list[TaskMessage]]]:
    """Yield the records of an Arrow batch, in runs of one partition."""
    columns = [batch.column(name) for name in COLUMNS]
    partitions, offsets, keys, values, headers, times, kinds = columns
    rows = zip(
        offsets.to_pylist(),
        keys.to_pylist(),
        values.to_pylist(),
        _headers(headers),
        kinds.to_pylist(),
        times.to_pylist(),
        repeat(topic),
        numbers := partitions.to_pylist(),
        strict=False,
    )
    yield from _by_partition([_made(row) for row in rows], numbers, topic)


def copies_of(
    messages: Sequence[Message], topic: str
) -> Iterator[tuple[TopicPartition, list[TaskMessage]]]:
    """Yield the client's messages, in runs of one partition."""
    rows = [
        (
            each.offset(),
            each.key(),
            each.value(),
            each.headers(),
            *each.timestamp(),
            topic,
            each.partition(),
        )
        for each in messages
    ]
    yield from _by_partition([_made(row) for row in rows], [row[7] for row in rows], topic)


def _made(row: Row) -> TaskMessage:
    message = TaskMessage()
    message.row = row
    message.calls = 0
    message.took_s = 0.0
    return message


def _by_partition(
    messages: Sequence[TaskMessage], numbers: Sequence[int], topic: str
) -> Iterator[tuple[TopicPartition, list[TaskMessage]]]:
    for start, stop in pairwise(_borders(numbers)):
        yield TopicPartition(topic, numbers[start]), list(messages[start:stop])


def ascending(messages: Sequence[TaskMessage], last: int) -> int:
    """Return the last record's offset; raises UsageError if offsets do not ascend."""
    for message in messages:
        if message.row[0] <= last:
            raise UsageError(
                f"{message.topic()}[{message.partition()}]: offset {message.row[0]} comes after"
                f" {last}: records must arrive in offset order, each once, and those of a partition"
                " (with order by key: of a key) in one task"
            )
        last = message.row[0]
    return last


def _borders(numbers: Sequence[int]) -> list[int]:
    """Return where the partition changes, including the beginning and the end."""
    if not numbers:
        return [0]
    if numbers[0] == numbers[-1] and numbers.count(numbers[0]) == len(numbers):
        return [0, len(numbers)]
    changes = [index for index, (one, next_) in enumerate(pairwise(numbers), 1) if one != next_]
    return [0, *changes, len(numbers)]


def _headers(column: Any) -> Iterator[Headers] | list[Headers]:
    """Return each record's (name, bytes) pairs: column by column, not struct by struct."""
    if column.null_count == len(column):
        return repeat(None)
    lengths = [length or 0 for length in column.value_lengths().to_pylist()]
    names, values = (each.to_pylist() for each in column.flatten().flatten())
    pairs = list(zip(names, values, strict=True))
    places = list(pairwise(accumulate(lengths, initial=0)))
    found: list[Headers] = [pairs[start:stop] or None for start, stop in places]
    if any(_REPLACED in name for name in set(names)):
        for at, (start, stop) in enumerate(places):
            if any(_REPLACED in name for name in names[start:stop]):
                found[at] = LostHeaders.new()
    return found
