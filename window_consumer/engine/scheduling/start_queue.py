"""Queues that decide which waiting records get the next free slot.

``StartQueue`` is the protocol. ``ArrivalOrder`` takes partitions in turn. ``FairQueue`` has a
``Backlog`` for each class of a partition, and chooses by the slot time that classes have used, from
a ``SlotTimeLedger``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.scheduling.ordering import Taken
from window_consumer.engine.scheduling.record_queue import Place, RecordRun
from window_consumer.engine.scheduling.slices import Slice


class StartableRecords(Protocol):
    """Records that wait to start: a partition's ordering or one class of it."""

    @property
    def startable(self) -> int:
        """An upper bound of how many records could start now; 0 means none."""

    def take(self, count: int) -> Taken | None:
        """Let at most ``count`` records start; None if none can."""

    def take_at(self, place: Place, but: Callable[[Lane], bool]) -> Taken | None:
        """Let one record from a place of the window start, of a lane that is not ``but``."""

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        """Take records that may join those whose lanes ``hold`` has."""


Backlog = tuple[Partition, StartableRecords]
"""The source of one slice's records, and its partition."""


class StartQueue(Protocol):
    """Decides which backlog gets the next free slot. Owner: poll thread.

    One queue has the new records, another one the copies in retry levels. In a round the dispatcher
    asks for the ``next`` backlog and reports the result by ``served``, ``pass_over`` or ``leave``,
    until the slots have enough or no backlog is left.
    """

    def __iter__(self) -> Iterator[Backlog]:
        """Yield the backlogs that may have records to start, the next one first."""

    def __len__(self) -> int:
        """The number of these backlogs."""

    @property
    def startable(self) -> int:
        """An upper bound of how many records of all backlogs could start now."""

    def wake(self, partition: Partition) -> None:
        """Let a partition take part: it may have records to start."""

    def remove(self, partition: Partition) -> None:
        """Remove a partition."""

    def begin(self) -> None:
        """Begin a round: backlogs that were passed over may be next again."""

    def next(self) -> Backlog | None:
        """Return the backlog whose turn it is; None if none is left in this round."""

    def served(self, backlog: Backlog) -> None:
        """Record that a slice of it goes out."""

    def pass_over(self, backlog: Backlog) -> None:
        """Give its turn to the others until one of them is served."""

    def leave(self, backlog: Backlog) -> None:
        """Record that none of its records can start until its partition is woken."""


class SlotTimeLedger(Protocol):
    """Records which slices have a slot, and how long they had it. Owner: poll thread."""

    def sent(self, slice_: Slice) -> None:
        """Record that a slice of new records, retries or copies goes out."""

    def over(self, slice_: Slice) -> None:
        """Record that a slice has ended, after ``slice_.elapsed`` seconds, or was abandoned."""


class ArrivalOrder:
    """Partitions in turn; the records of each leave as they arrived."""

    def __init__(self) -> None:
        self._line: deque[Partition] = deque()
        self._queued: set[Partition] = set()
        self._passed_over = 0

    def __iter__(self) -> Iterator[Backlog]:
        return ((partition, partition.ordering) for partition in self._line)

    def __len__(self) -> int:
        return len(self._line)

    @property
    def startable(self) -> int:
        """An upper bound of how many records all partitions could start."""
        return sum(partition.ordering.startable for partition in self._line)

    def wake(self, partition: Partition) -> None:
        """Queue a partition behind all others."""
        if partition not in self._queued:
            self._queued.add(partition)
            self._line.append(partition)

    def remove(self, partition: Partition) -> None:
        """Remove a partition."""
        if partition in self._queued:
            self._queued.remove(partition)
            self._line.remove(partition)

    def begin(self) -> None:
        """Forget which partitions were passed over."""
        self._passed_over = 0

    def next(self) -> Backlog | None:
        """Return the first partition, unless all were passed over since one was served."""
        if self._passed_over >= len(self._line):
            return None
        partition = self._line[0]
        return partition, partition.ordering

    def served(self, backlog: Backlog) -> None:
        """Queue a partition behind all others."""
        self._line.remove(backlog[0])
        self._line.append(backlog[0])
        self._passed_over = 0

    def pass_over(self, backlog: Backlog) -> None:
        """Queue a partition behind all others, without asking those twice."""
        self._line.remove(backlog[0])
        self._line.append(backlog[0])
        self._passed_over += 1

    def leave(self, backlog: Backlog) -> None:
        """Remove a partition until it is woken."""
        self.remove(backlog[0])
