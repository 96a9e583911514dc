"""An ordering by class: records start in order within their lanes, whatever their classes.

Every record with a lane waits in the line of its lane, so the order of keys comes first: a lane is
in the queue of the class of its first record. A lane gives one record at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import NamedTuple

from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.lanes import NO_HOLD, Lane, LaneHold, LaneOf, Lanes
from window_consumer.engine.scheduling.ordering import Ordering, Taken
from window_consumer.engine.scheduling.record_queue import Place, RecordRun
from window_consumer.engine.scheduling.shares.share_classes import ShareClass, ShareClasses
from window_consumer.model.record import Message

NEAR = 200
"""How many records beside a place are searched for one that may be taken."""


class Waiting(NamedTuple):
    """A waiting record, and since when it waits."""

    seq: int
    message: Message
    share: ShareClass
    since: float


class ClassRecords:
    """One class's records of a partition, see ``StartableRecords``. Owner: poll thread."""

    __slots__ = ("free", "held_until", "lanes", "ordering", "partition", "share")

    def __init__(self, ordering: ClassOrdering, share: ShareClass):
        self.ordering = ordering
        self.share = share
        self.free: deque[Waiting] = deque()
        """Records without a lane."""
        self.lanes: dict[Lane, None] = {}
        """Lanes without a holder whose first record is of this class, oldest offer first."""
        self.held_until = float("-inf")
        """When it may get a token, if its rate holds it back."""

    def __len__(self) -> int:
        return len(self.free) + len(self.lanes)

    @property
    def startable(self) -> int:
        """See ``StartableRecords``."""
        return min(self.ordering.outer.startable, len(self))

    @property
    def first(self) -> Message:
        """The record that starts next."""
        lines = self.ordering.lines
        heads = [*(lines[lane][0] for lane in islice(self.lanes, 1)), *islice(self.free, 1)]
        return min(heads, key=attrgetter("seq")).message

    @property
    def is_offered(self) -> bool:
        """It has records, and its partition has not been released."""
        return self.ordering.classes.get(self.share) is self

    def take(self, count: int) -> Taken | None:
        """See ``StartableRecords``."""
        return self._of_class(lambda: self.ordering.outer.take(count))

    def take_at(self, place: Place, but: Callable[[Lane], bool]) -> Taken | None:
        """See ``StartableRecords``."""
        return self._of_class(lambda: self.ordering.outer.take_at(place, but))

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        """See ``StartableRecords``."""
        self.ordering.only = self
        try:
            return self.ordering.outer.take_more(count, hold)
        finally:
            self.ordering.only = None

    def _of_class(self, take: Callable[[], Taken | None]) -> Taken | None:
        self.ordering.only = self
        try:
            return take()
        finally:
            self.ordering.only = None


class ClassOrdering(Ordering):
    """The waiting records of a partition, by class. Owner: poll thread."""

    def __init__(self, lanes: Lanes, lane_of: LaneOf | None, shares: ShareClasses):
        super().__init__(lanes)
        self.lane_of = lane_of
        self.shares = shares
        self.lines: dict[Lane, deque[Waiting]] = {}
        self.classes: dict[ShareClass, ClassRecords] = {}
        """The classes with startable records."""
        self.woken: dict[ClassRecords, None] = {}
        """The classes that became startable since the last report to the queue."""
        self.only: ClassRecords | None = None
        """The class that is taken from; None for all."""
        self._startable = 0
        self.partition: Partition

    def belongs_to(self, partition: Partition) -> None:
        """Set the partition of these records, before the first one arrives."""
        self.partition = partition

    @property
    def outer(self) -> Ordering:
        """The partition's ordering: this one, or one around it."""
        return self.partition.ordering

    # ---- questions

    @property
    def startable(self) -> int:
        return self._startable

    @property
    def oldest(self) -> Message | None:
        heads = chain(
            (line[0] for line in self.lines.values()),
            (each.free[0] for each in self.classes.values() if each.free),
        )
        first = min(heads, key=attrgetter("seq"), default=None)
        return None if first is None else first.message

    @property
    def longest_line(self) -> tuple[Lane, int] | None:
        if not self.lines:
            return None
        lane = max(self.lines, key=lambda each: len(self.lines[each]))
        return lane, len(self.lines[lane])

    def line_of(self, lane: Lane | None) -> int:
        return len(self.lines.get(lane, ()))

    def waiting(self) -> Iterator[tuple[int, Message]]:
        free = (each.free for each in self.classes.values())
        return ((each.seq, each.message) for each in chain(*self.lines.values(), *free))

    # ---- records

    def add(self, run: RecordRun) -> None:
        shares, now = self.shares, self.shares.now
        for seq, message in zip(run.seqs, run.messages, strict=True):
            share = shares.of(self.partition, message, arrives=True)
            self._add(Waiting(seq, message, share, now))

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        shares, now = self.shares, self.shares.now
        for message, seq in zip(reversed(messages), reversed(seqs), strict=True):
            waiting = Waiting(seq, message, shares.of(self.partition, message), now)
            self._add(waiting, in_front=True)

    def _add(self, waiting: Waiting, *, in_front: bool = False) -> None:
        self.shares.arrived(waiting.share)
        lane = None if self.lane_of is None else self.lane_of(waiting.message)
        if lane is None:
            free = self._class(waiting.share).free
            self._startable += 1
            (free.appendleft if in_front else free.append)(waiting)
            return
        line = self.lines.get(lane)
        if line is None:
            self.lines[lane] = deque((waiting,))
        elif not in_front:
            line.append(waiting)
            return
        elif lane in self.ready:
            self.withdraw(lane)  # its first record may be of another class
            line.appendleft(waiting)
            self.offer(lane)
            return
        else:
            line.appendleft(waiting)
        if lane not in self.lanes.busy:
            self.lanes.busy.add(lane)
            self.offer(lane)

    def offer(self, lane: Lane) -> None:
        self.ready[lane] = None
        self._class(self.lines[lane][0].share).lanes[lane] = None
        self._startable += 1

    def withdraw(self, lane: Lane) -> None:
        del self.ready[lane]
        records = self.classes[self.lines[lane][0].share]
        del records.lanes[lane]
        self._startable -= 1
        self._drop_if_empty(records)

    def _class(self, share: ShareClass) -> ClassRecords:
        """Return the class that records are added to."""
        found = self.classes.get(share)
        if found is None:
            found = self.classes[share] = ClassRecords(self, share)
            self.woken[found] = None
        return found

    def _drop_if_empty(self, records: ClassRecords) -> None:
        if not len(records):
            del self.classes[records.share]
            self.woken.pop(records, None)

    # ---- starts

    def take(self, count: int) -> Taken | None:
        records = self.next_class()
        if records is None:
            return None
        taken: list[Waiting] = []
        lanes: list[Lane] = []
        while len(taken) < count and len(records):
            lane = next(iter(records.lanes), None)
            free = records.free
            if lane is not None and not (free and free[0].seq < self.lines[lane][0].seq):
                lanes.append(lane)
                taken.append(self._leave(lane))
                del records.lanes[lane]
            else:
                taken.append(free.popleft())
        self._drop_if_empty(records)
        return self._started(taken, lanes)

    def take_at(self, place: Place, but: Callable[[Lane], bool]) -> Taken | None:
        records = self.next_class()
        if records is None:
            return None
        lanes = list(records.lanes)
        first = place.of(len(lanes)) if lanes else 0
        near = chain(lanes[first : first + NEAR], reversed(lanes[max(0, first - NEAR) : first]))
        lane = next((each for each in near if not but(each)), None)
        if lane is not None:
            waiting = self._leave(lane)
            del records.lanes[lane]
        elif records.free:
            at = place.of(len(records.free))
            waiting = records.free[at]
            del records.free[at]
        else:
            return None
        self._drop_if_empty(records)
        return self._started([waiting], [] if lane is None else [lane])

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        taken = self.take(count)
        if taken is None:
            return None
        hold.merge(taken[1])
        return taken[0]

    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:
        return NO_HOLD if self.lane_of is None else self.lanes.acquire(self, lanes)

    def next_class(self) -> ClassRecords | None:
        """Return the class whose records ``take`` would take; None if there are none."""
        if self.only is not None:
            return self.only if len(self.only) else None
        return next(iter(self.classes.values()), None)

    def _leave(self, lane: Lane) -> Waiting:
        """Remove the first record of a lane that is offered."""
        line = self.lines[lane]
        waiting = line.popleft()
        del self.ready[lane]
        if not line:
            del self.lines[lane]
        return waiting

    def _started(self, taken: list[Waiting], lanes: list[Lane]) -> Taken:
        self._startable -= len(taken)
        for each in taken:
            self.shares.waited(each.share, each.since)
            self.shares.gone(each.share)
        run = RecordRun.of([each.message for each in taken], [each.seq for each in taken])
        return run, NO_HOLD if self.lane_of is None else self.lanes.enter(self, lanes)

    def clear(self) -> None:
        for each in chain(*self.lines.values(), *(c.free for c in self.classes.values())):
            self.shares.gone(each.share)
        for records in self.classes.values():
            records.free.clear()  # the queue may still have it
            records.lanes.clear()
        offered = list(self.ready)
        self.lines.clear()
        self.ready.clear()
        self.classes.clear()
        self.woken.clear()
        self._startable = 0
        for lane in offered:
            self.lanes.pass_on(lane, self)
