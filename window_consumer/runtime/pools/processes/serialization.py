"""Records on their way to another process: columns of plain values, and messages made of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import repeat
from operator import itemgetter
from pickle import HIGHEST_PROTOCOL, Pickler
from typing import Any, NamedTuple

from window_consumer.engine.offsets import after, is_contiguous
from window_consumer.engine.scheduling.ordering import Ordering
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import AssignmentEpoch, Message

Column = Sequence[Any]
Row = tuple[Any, ...]


class SerializedSlice(NamedTuple):
    """A slice in serialized form. Its records are of one partition."""

    serial: int
    """The parent's name for the slice."""
    shared_slot: int
    topic: str
    partition: int
    attempt: int
    assignment: AssignmentEpoch
    is_copy: bool
    is_batch: bool
    """Whether one call gets all of its records."""
    ordering: type[Ordering] | None
    """Finds lanes; None if earlier failures do not matter to the slot."""
    offsets: Column
    keys: Column | None
    """None if no record has a key; the same applies to ``headers``."""
    values: Column
    headers: Column | None
    kinds: Column | int
    """The kinds of the timestamps; one number where all are equal."""
    times: Column


def packed(
    serial: int, shared_slot: int, slice_: Slice, messages: Sequence[Message]
) -> SerializedSlice:
    """Return the serialized form of a slice whose records are ``messages``, all of one class.

    Builds each column with one call into C, because this is the parent's share of the work.
    """
    first, kind = messages[0], type(messages[0])
    keys = list(map(kind.key, messages))
    headers = list(map(kind.headers, messages))
    stamps = list(map(kind.timestamp, messages))
    kinds = set(map(_KIND, stamps))
    return SerializedSlice(
        serial,
        shared_slot,
        first.topic(),
        first.partition(),
        slice_.call.attempt - slice_.call.uncalled,
        slice_.call.assignment,
        slice_.call.before is not None,
        slice_.is_batch,
        None if slice_.lane_of is None else type(slice_.partition.ordering),
        _offsets(slice_, messages),
        None if keys[0] is None and keys.count(None) == len(keys) else keys,
        list(map(kind.value, messages)),
        headers if any(headers) else None,
        kinds.pop() if len(kinds) == 1 else list(map(_KIND, stamps)),
        array("q", list(map(_TIME, stamps))),
    )


def _offsets(slice_: Slice, messages: Sequence[Message]) -> Column:
    if isinstance(slice_.seqs, range):  # in the order of the log
        low, high = messages[0].offset(), messages[-1].offset()
        if is_contiguous(low, high, len(messages)):
            return range(low, after(high))
    return list(map(type(messages[0]).offset, messages))


def pickled(serialized: SerializedSlice) -> memoryview:
    """Return the bytes of a serialized slice; it holds no object twice, so it needs no memo."""
    data = BytesIO()
    pickler = Pickler(data, HIGHEST_PROTOCOL)
    pickler.fast = True
    pickler.dump(tuple(serialized))
    return data.getbuffer()


def unpacked(serialized: SerializedSlice) -> Iterator[Row]:
    """Return the fields of each message, in order."""
    nothing = repeat(None)
    return zip(
        serialized.offsets,
        serialized.keys or nothing,
        serialized.values,
        serialized.headers or nothing,
        repeat(serialized.kinds) if isinstance(serialized.kinds, int) else serialized.kinds,
        serialized.times,
        repeat(serialized.topic),
        repeat(serialized.partition),
    )


_KIND, _TIME = itemgetter(0), itemgetter(1)


class ReceivedMessage:
    """A slot's message in another process, in place of the client's."""

    # Its creator sets ``row``: calling __init__ would triple the total cost.
    __slots__ = ("row",)
    row: Row

    def __len__(self) -> int:
        value = self.row[2]
        return 0 if value is None else len(value)

    def topic(self) -> str:
        """Return the topic's name."""
        return str(self.row[6])

    def partition(self) -> int:
        """Return the partition's number."""
        return int(self.row[7])

    def offset(self) -> int:
        """Return the record's own offset."""
        return int(self.row[0])

    def key(self) -> bytes | None:
        """Return the key's bytes or None."""
        key: bytes | None = self.row[1]
        return key

    def value(self) -> bytes | None:
        """Return the value's bytes, None for a tombstone."""
        value: bytes | None = self.row[2]
        return value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return pairs of name and bytes (or None), None without headers."""
        headers: list[tuple[str, bytes | None]] | None = self.row[3]
        return headers

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp and milliseconds since 1970."""
        return self.row[4], self.row[5]
