"""A Source's deliveries: their checks, the holes between them, and those that have to wait.

The Engine's rules hold for records in offset order, of the partition they are delivered for.
Without this check, a Source that mixes partitions up would let unread offsets be committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf

from window_consumer.engine.offsets import after, is_contiguous, runs_of
from window_consumer.model.errors import RunError
from window_consumer.model.protocols import Batch
from window_consumer.model.record import Message

DUE_TOGETHER_S = 0.02
"""Copies whose due times differ by less start together: one by one, each would cost a slice."""

REMEMBERED_HOLES = 64
"""How many holes are kept for each partition: transactions leave a hole each."""


class ImpossibleRecordsError(RunError):
    """A Source delivered records under another partition's name."""

    code = "WC120"


def check_names(batch: Batch) -> None:
    """Raise ImpossibleRecordsError if the first or last record belongs to another partition."""
    name = batch.name
    for message in (batch.messages[0], batch.messages[-1]):
        if message.partition() != name.partition or message.topic() != name.topic:
            raise ImpossibleRecordsError(
                f"{message.topic()}[{message.partition()}]@{message.offset()} was delivered as a"
                f" record of {name}: a bug, please report it. None of it was handled or"
                " committed; start the worker again"
            )


class Holes:
    """The latest offsets that one assignment's deliveries skipped. Owner: poll thread.

    A record there comes too late: the offset after it may be committed.
    """

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: deque[range] = deque(maxlen=REMEMBERED_HOLES)

    def record(self, messages: Sequence[Message], expected: int) -> None:
        """Record the holes of new records; there is none before them at offset ``expected``."""
        first, last = messages[0].offset(), messages[-1].offset()
        if first == expected and is_contiguous(first, last, len(messages)):
            return
        for run in runs_of([message.offset() for message in messages]):
            if run.start > expected:
                self._ranges.append(range(expected, run.start))
            expected = run.stop

    def within(self, messages: Sequence[Message]) -> range | None:
        """Return the range, first to last, of these records that lie in holes; None if none do."""
        found = [
            offset
            for message in messages
            if any((offset := message.offset()) in hole for hole in self._ranges)
        ]
        return range(min(found), after(max(found))) if found else None


class DeliveryBuffer(deque[tuple[float, list[Message]]]):
    """Deliveries that wait until they are due, or for room in the window. Owner: poll thread.

    Each is a time, when its records are due, and the records.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records = 0
        """How many records wait."""

    def put(self, due: float, messages: list[Message]) -> None:
        """Add records, which come after all others."""
        self.append((due, messages))
        self.records += len(messages)

    def put_copies(self, dues: Sequence[float], messages: list[Message]) -> None:
        """Add copies, each with its time; those due within a moment wait for the last of them."""
        start = 0
        for stop in range(1, len(dues) + 1):
            if stop == len(dues) or abs(dues[stop] - dues[start]) > DUE_TOGETHER_S:
                self.put(max(dues[start:stop]), messages[start:stop])
                start = stop

    def take(self, most: int) -> list[Message]:
        """Remove up to ``most`` records of the first delivery; return them."""
        due, messages = self.popleft()
        if len(messages) > most:
            self.appendleft((due, messages[most:]))
            messages = messages[:most]
        self.records -= len(messages)
        return messages

    def clear(self) -> None:
        """Remove all records."""
        super().clear()
        self.records = 0

    @property
    def next_due(self) -> float:
        """When the first records are due; infinity if none wait."""
        return self[0][0] if self else inf

    @property
    def first_offset(self) -> int | None:
        """The offset of the first record; None if none waits."""
        return int(self[0][1][0].offset()) if self else None

    @property
    def next_offset(self) -> int:
        """The offset after the last of the records, of which there are some."""
        return after(int(self[-1][1][-1].offset()))
