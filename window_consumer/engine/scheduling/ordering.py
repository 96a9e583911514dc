"""Which records may start now: in any order or one after another; ``key_ordering``: by key.

An ordering holds the records of one partition that are in the window and not started. It promises
two things. At most one record of a lane is in progress (in a slice, waiting for its retry, being
copied to another topic), apart from those that follow it in the same slice. The records of a lane
leave in the order of their delivery.

``Lanes``, which siblings share, tracks which lanes are busy. It does not promise a lane to the
sibling that has waited longest: a copy was already overtaken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from window_consumer.engine.scheduling.lanes import NO_HOLD, Lane, LaneHold, LaneOf, Lanes
from window_consumer.engine.scheduling.record_queue import Place, RecordRun, RunQueue
from window_consumer.model.record import Message

Taken = tuple[RecordRun, LaneHold]
"""Records that left their ordering, and the hold on the lanes they keep busy."""


class Ordering(ABC):
    """The records of a partition that are waiting to start. Owner: poll thread."""

    lane_of: LaneOf | None = None

    def __init__(self, lanes: Lanes) -> None:
        self._queue = RunQueue()
        self.lanes = lanes
        self.lines: dict[Lane, Any] = {}
        """Records that wait for a lane, in delivered order."""
        self.ready: dict[Lane, None] = {}
        """Offered lanes that have waiting records and no holder, oldest first."""
        self.singly = False
        """Most calls return results. A record then never follows another of its lane in a slice,
        where it would only wait for their acks."""
        lanes.join(self)

    @property
    def plain(self) -> Ordering:
        """The innermost ordering, without those around it."""
        return self

    @property
    def unpaced(self) -> Ordering:
        """The ordering without a rate in front of it."""
        return self

    def within(self, wrap: Callable[[Ordering], Ordering]) -> Ordering:
        """Return the ordering within another one, behind a rate in front of it."""
        return wrap(self)

    @property
    def waits(self) -> bool:
        """Something waits only for its rate."""
        return False

    def add(self, run: RecordRun) -> None:
        """Take newly delivered records."""
        self._queue.append(run)

    @property
    def startable(self) -> int:
        """An upper bound of how many records could start now; 0 means none."""
        return self._queue.records

    @property
    def oldest(self) -> Message | None:
        """Roughly the waiting record with the lowest offset: records taken back may hide it."""
        return self._queue.first

    @property
    def longest_line(self) -> tuple[Lane, int] | None:
        """The lane with the most waiting records, and their number; None if none wait."""
        return None

    def line_of(self, lane: Lane | None) -> int:  # noqa: ARG002 - there are no lanes here
        """Return how many records of a lane wait for the one in progress."""
        return 0

    def waiting(self) -> Iterator[tuple[int, Message]]:
        """Yield the waiting records with their sequence numbers, for display: walks all of them."""
        return self._queue.records_in_order()

    @abstractmethod
    def take(self, count: int) -> Taken | None:
        """Let at most ``count`` records start; None if none can.

        Return them with the hold on their lanes.
        """

    def take_at(
        self,
        place: Place,
        but: Callable[[Lane], bool],  # noqa: ARG002 - there are no lanes here
    ) -> Taken | None:
        """Let one record from a place of the window start; None if none can.

        Lanes for which ``but`` returns true are left out.
        """
        run = self._queue.take_at(place)
        return None if run is None else (run, NO_HOLD)

    @abstractmethod
    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        """Take records as ``take`` does for the owner of ``hold``; they may belong to its lanes.

        Afterwards the hold covers their lanes too.
        """

    @abstractmethod
    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:
        """Hold lanes of records that have left, for something other than their slice."""

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        """Take unstarted records back; they are first in line again.

        Their hold is released separately, before or after.
        """
        self._queue.put_in_front(RecordRun.of(messages, seqs))

    def offer(self, lane: Lane) -> None:
        """Let the first record of a lane's line start: nothing holds the lane."""
        raise NotImplementedError  # records never wait in line here

    def withdraw(self, lane: Lane) -> None:
        """Let a lane's line wait again: the lane is held."""
        raise NotImplementedError  # as above

    def clear(self) -> None:
        """Discard everything that waits; records in progress keep their lanes."""
        self._queue.clear()

    def leave(self) -> None:
        """Discard everything, and release all lanes that records of this partition hold."""
        self.clear()
        self.lanes.leave(self)


class Unordered(Ordering):
    """All records may start at any time."""

    def take(self, count: int) -> Taken | None:
        run = self._queue.take(count)
        return None if run is None else (run, NO_HOLD)

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:  # noqa: ARG002 - there are no lanes
        return self._queue.take(count)

    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:  # noqa: ARG002 - there are none
        return NO_HOLD


_WHOLE_PARTITION: Lane = "partition"


class ByPartition(Ordering):
    """One slice at a time: every record waits for the one before it."""

    lane_of: LaneOf | None = staticmethod(lambda _message: _WHOLE_PARTITION)

    @property
    def startable(self) -> int:
        return 0 if self.lanes.busy else self._queue.records

    def line_of(self, lane: Lane | None) -> int:
        return 0 if lane is None else self._queue.records

    def take(self, count: int) -> Taken | None:
        if self.lanes.busy:
            return None
        run = self._queue.take(1 if self.singly else count)
        return None if run is None else (run, self.lanes.enter(self, (_WHOLE_PARTITION,)))

    def take_at(self, place: Place, but: Callable[[Lane], bool]) -> Taken | None:  # noqa: ARG002 - only the first may start
        return None if but(_WHOLE_PARTITION) else self.take(1)

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        if not self.lanes.only(hold):
            return None
        return self._queue.take(1 if self.singly else count)

    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:
        return self.lanes.acquire(self, lanes)


class DelegatingOrdering(Ordering):
    """Leaves everything to an inner ordering, which shares the lanes; a base for stricter ones."""

    def __init__(self, inner: Ordering):
        self._inner = inner
        self.lanes = inner.lanes
        self.lane_of = inner.lane_of

    @property
    def plain(self) -> Ordering:
        return self._inner.plain

    def within(self, wrap: Callable[[Ordering], Ordering]) -> Ordering:
        self._inner = self._inner.within(wrap)
        return self

    @property
    def singly(self) -> bool:
        """No record follows another of its lane in a slice."""
        return self._inner.singly

    @singly.setter
    def singly(self, value: bool) -> None:
        self._inner.singly = value

    @property
    def startable(self) -> int:
        return self._inner.startable

    @property
    def oldest(self) -> Message | None:
        return self._inner.oldest

    @property
    def longest_line(self) -> tuple[Lane, int] | None:
        return self._inner.longest_line

    def line_of(self, lane: Lane | None) -> int:
        return self._inner.line_of(lane)

    def waiting(self) -> Iterator[tuple[int, Message]]:
        return self._inner.waiting()

    def add(self, run: RecordRun) -> None:
        self._inner.add(run)

    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:
        return self._inner.acquire(lanes)

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        self._inner.put_back(messages, seqs)

    def clear(self) -> None:
        self._inner.clear()

    def leave(self) -> None:
        self._inner.leave()
        self.clear()
