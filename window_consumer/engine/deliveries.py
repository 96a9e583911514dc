"""Checks of a Source's deliveries: the partition of its records, and the holes between them.

The Engine's rules hold for records in offset order, of the partition they are delivered for.
Without this check, a Source that mixes partitions up would let unread offsets be committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from window_consumer.engine.offsets import after, is_contiguous, runs_of
from window_consumer.model.errors import RunError
from window_consumer.model.protocols import Batch
from window_consumer.model.record import Message

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
