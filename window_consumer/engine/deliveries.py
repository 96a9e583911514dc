"""What a Source may deliver of a partition, and what its records passed over.

The rules of an Engine hold for records that come in offset order, of the partition that they are
said to be of. Were they believed without a look, a Source that mixes partitions up would let
offsets be committed that nobody has read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from window_consumer.engine.offsets import (
    after,
    is_contiguous,
    runs_of,
)
from window_consumer.model.errors import RunError
from window_consumer.model.protocols import Batch
from window_consumer.model.record import Message

REMEMBERED_HOLES = 64
"""Of one partition: a log that is written in transactions has a hole after each of them."""


class ImpossibleRecordsError(RunError):
    """A Source has delivered records as another partition's."""


def check_names(batch: Batch) -> None:
    """Raise ImpossibleRecordsError where the ends of a batch are another partition's records."""
    name = batch.name
    for message in (batch.messages[0], batch.messages[-1]):
        if message.partition() != name.partition or message.topic() != name.topic:
            raise ImpossibleRecordsError(
                f"{message.topic()}[{message.partition()}]@{message.offset()} was delivered as a"
                f" record of {name}: a bug, please report it. Nothing of it was handled or"
                " committed; start the worker again"
            )


class Holes:
    """The offsets that one assignment's deliveries went over, the latest ones. Owner: poll thread.

    A record there comes too late: the offset behind it may be committed.
    """

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: deque[range] = deque(maxlen=REMEMBERED_HOLES)

    def record(self, messages: Sequence[Message], expected: int) -> None:
        """Note what new records go over; ``expected`` is the offset that would leave no hole."""
        first, last = messages[0].offset(), messages[-1].offset()
        if first == expected and is_contiguous(first, last, len(messages)):
            return
        for run in runs_of([message.offset() for message in messages]):
            if run.start > expected:
                self._ranges.append(range(expected, run.start))
            expected = run.stop

    def within(self, messages: Sequence[Message]) -> range | None:
        """Return what these records cover of the holes, first to last; None for nothing."""
        found = [
            offset
            for message in messages
            if any((offset := message.offset()) in hole for hole in self._ranges)
        ]
        return range(min(found), after(max(found))) if found else None
