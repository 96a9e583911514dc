"""The lanes in the ladder: which of their records are outstanding, by original offset.

A record is outstanding from its delivery to its outcome, wherever it is: in the source, a level,
the entry topic or the park topic. While a lane is in the ladder, only its outstanding record with
the smallest original offset may start. Everything else follows from this rule: a successor that
comes from the source is parked, and the next record starts when the first one has ended.

One index belongs to one source partition. It is rebuilt from the ladder's topics at each
assignment, and changes only with deliveries and outcomes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import NamedTuple

from attrs import define, field, frozen

from window_consumer.model.record import TopicPartition

Lane = Hashable
"""A key."""

LadderRecord = tuple[Lane, int]
"""A record of a source partition: its lane and its original offset."""

Place = tuple[TopicPartition, int]
"""Where a record was delivered: its present partition, and its offset there."""


class SourceTurn(Enum):
    """What happens to a record of the source topic at its turn."""

    CALL = "call"
    PARK = "park"
    """Its lane is in the ladder: a copy follows in the park topic."""
    FINISH = "finish"
    """Its copy has been in the ladder since before a crash or a rebalance."""
    HOLD = "hold"
    """It should be parked but there is no room: it waits in the source."""


_NOWHERE: AbstractSet[Place] = frozenset()


@frozen
class ParkLimits:
    """The most that may be parked; further successors wait in the source, whose window fills."""

    max_keys: int = 100_000
    max_records: int = 1_000_000


class ParkedLane(NamedTuple):
    """A lane in the ladder, for display."""

    lane: Lane
    head: int
    """The original offset of its first record."""
    followers: int
    """How many records wait behind that one."""
    since: float
    """When the lane entered, or the scan found it there."""
    place: Place | None
    """Where the head is in a window; None if it waits for its due time or is not read yet."""


@define
class _Line:
    """The outstanding records of one lane: 8 bytes each, sorted."""

    since: float
    """When the first of them entered."""
    offsets: array[int] = field(factory=lambda: array("q"))
    start: int = 0
    """Entries before this index have ended; they are removed together."""
    climbing: int | None = None
    """The record that moved to a level last, until it ends there."""
    dead_head: int | None = None
    """A record that became a dead letter. Records after it, up to ``last_follower``, become dead
    letters too."""
    last_follower: int = -1

    def __len__(self) -> int:
        return len(self.offsets) - self.start

    @property
    def head(self) -> int:
        return self.offsets[self.start]

    @property
    def last(self) -> int:
        return self.offsets[-1]

    def place(self, offset: int) -> int:
        return bisect_left(self.offsets, offset, self.start)

    def add(self, offset: int) -> None:
        """Add an offset, usually the largest; it counts as often as it is added."""
        self.offsets.insert(self.place(offset), offset)

    def count(self, offset: int) -> int:
        """Return how often an offset is outstanding: a copy may be written twice."""
        at = self.place(offset)
        return bisect_right(self.offsets, offset, at) - at

    def follows(self, offset: int) -> bool:
        """Return whether a record follows the dead head."""
        return self.dead_head is not None and self.dead_head < offset <= self.last_follower

    def judge(self, offset: int, *, is_dead: bool) -> None:
        """Let outstanding records follow a record that is dead now, or stop following it."""
        if not is_dead:
            if offset == self.dead_head:
                self.dead_head = None
        elif self.dead_head is None or not (self.follows(offset) or self.follows(self.head)):
            self.dead_head, self.last_follower = offset, self.last

    def remove(self, offset: int) -> bool:
        """Remove an offset, usually the smallest; return False if it is not there."""
        at = self.place(offset)
        if at == len(self.offsets) or self.offsets[at] != offset:
            return False
        if at != self.start:
            del self.offsets[at]
            return True
        self.start += 1
        if 2 * self.start > len(self.offsets):
            del self.offsets[: self.start]
            self.start = 0
        return True


class LadderIndex:
    """The outstanding records of one source partition's lanes in the ladder.

    A record counts once for each of its copies. Delivered copies have a place. Owner: poll thread.
    """

    def __init__(self, limits: ParkLimits):
        self._limits = limits
        self._lines: dict[Lane, _Line] = {}
        self._places: dict[tuple[Lane, int], set[Place]] = {}
        """By lane and original offset."""
        self._unread: dict[Lane, None] = {}
        """Lanes whose heads may have no place."""
        self._entered: Counter[tuple[Lane, int]] | None = None
        """Records that have entered since ``watch``."""
        self.records = 0
        """How many records are outstanding in all of these lanes."""

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._lines

    @property
    def has_room(self) -> bool:
        """One more record may be parked."""
        limits = self._limits
        return len(self._lines) < limits.max_keys and self.records < limits.max_records

    @property
    def has_places(self) -> bool:
        """Some of the records are delivered."""
        return bool(self._places)

    @property
    def has_unread_head(self) -> bool:
        """A record that is neither delivered nor in a level may start."""
        while self._unread:
            lane = next(iter(self._unread))
            line = self._lines[lane]
            if line.head != line.climbing and (lane, line.head) not in self._places:
                return True
            del self._unread[lane]
        return False

    # ---- turns

    def at_turn(self, lane: Lane | None, offset: int, place: Place, now: float) -> SourceTurn:
        """Return what happens to a record of the source; a record without a lane is called."""
        line = None if lane is None else self._lines.get(lane)
        if line is None or offset < line.head:
            return SourceTurn.CALL
        if place in self._places.get((lane, offset), ()):
            return SourceTurn.CALL if offset == line.head else SourceTurn.HOLD
        if line.count(offset):
            return SourceTurn.FINISH
        if self.has_room:
            return SourceTurn.PARK
        self.deliver(lane, offset, place, now)
        return SourceTurn.HOLD

    def copies(self, lane: Lane, offset: int) -> int:
        """Return how many copies of a record are outstanding."""
        line = self._lines.get(lane)
        return 0 if line is None else line.count(offset)

    def has_unread(self, lane: Lane, offset: int) -> bool:
        """Return whether more copies of a record are outstanding than have a place."""
        return self.copies(lane, offset) > len(self._places.get((lane, offset), _NOWHERE))

    def may_start(self, lane: Lane | None, offset: int) -> bool:
        """Return whether a record of the ladder may start: no earlier one of its lane is left."""
        line = None if lane is None else self._lines.get(lane)
        return line is None or offset <= line.head

    def dead_head_of(self, lane: Lane, offset: int | None = None) -> int | None:
        """Return the dead head that a record follows, by default the first one of its lane."""
        line = self._lines.get(lane)
        if line is None or not line.follows(line.head if offset is None else offset):
            return None
        return line.dead_head

    # ---- what happens to a record

    def enter(self, lane: Lane, offset: int, now: float) -> None:
        """Record that a record is in the ladder: its copy was acked, or the scan found it."""
        line = self._lines.get(lane)
        if line is None:
            line = self._lines[lane] = _Line(now)
            self._unread[lane] = None
        line.add(offset)
        self.records += 1
        if self._entered is not None:
            self._entered[lane, offset] += 1

    def deliver(self, lane: Lane, offset: int, place: Place, now: float) -> None:
        """Record where a record is delivered; repeating the same place changes nothing.

        An unknown record enters: a copy may have been put back by hand, or written twice.
        """
        places = self._places.setdefault((lane, offset), set())
        if place in places:
            return
        places.add(place)
        line = self._lines.get(lane)
        if line is None or len(places) > line.count(offset):
            self.enter(lane, offset, now)

    def move(self, lane: Lane, offset: int, place: Place) -> bool:
        """Record that a delivered record has a copy elsewhere; return False if it has no place."""
        places = self._places.get((lane, offset), set())
        if place not in places:
            return False
        places.remove(place)
        if not places:
            del self._places[lane, offset]
            if lane in self._lines:
                self._unread[lane] = None
        return True

    def climb(self, lane: Lane, offset: int) -> None:
        """Record that the copy of an outstanding record is in a level."""
        line = self._lines.get(lane)
        if line is not None:
            line.climbing = offset

    def end(
        self, lane: Lane, offset: int, place: Place, *, is_dead: bool = False, is_copy: bool = False
    ) -> Collection[Place]:
        """Record a delivered record's outcome; return the places of records that may start now.

        If it is dead, the outstanding records behind it follow it. A copy without a place was
        delivered before the index was rebuilt.
        """
        line = self._lines.get(lane)
        if line is not None:
            line.judge(offset, is_dead=is_dead)
        is_known = self.move(lane, offset, place) or (is_copy and self.has_unread(lane, offset))
        return self.remove(lane, offset) if is_known else ()

    def follow(self, lane: Lane, offset: int, dead_head: int) -> None:
        """Record that, according to the scan, an outstanding record follows a dead head."""
        line = self._lines[lane]
        earlier = dead_head if line.dead_head is None else min(line.dead_head, dead_head)
        line.dead_head, line.last_follower = earlier, max(line.last_follower, offset)

    def remove(self, lane: Lane, offset: int) -> Collection[Place]:
        """Remove a record once; return the places of records that may start now."""
        line = self._lines.get(lane)
        if line is None or not line.remove(offset):
            return ()
        self.records -= 1
        if not line:
            del self._lines[lane]
            self._unread.pop(lane, None)
            return ()
        if offset == line.climbing:
            line.climbing = None  # its other copy, if it has one, is elsewhere
        self._unread[lane] = None
        return tuple(self._places.get((lane, line.head), ()))

    def watch(self) -> None:
        """Remember records that enter from now on, while copies of the others are searched for."""
        self._entered = Counter()

    def keep_only(
        self, left: Mapping[tuple[Lane, int], AbstractSet[Place]]
    ) -> list[tuple[Lane, Collection[Place]]]:
        """Remove the records that have neither a place nor a remaining copy.

        Records that have entered since ``watch`` remain. Return the places of records that may
        start now, by lane. It visits all records: a second for a million.
        """
        entered, self._entered = self._entered or Counter(), None
        starts: list[tuple[Lane, Collection[Place]]] = []
        for lane, line in list(self._lines.items()):
            places: Collection[Place] | None = None
            for offset, count in Counter(line.offsets[line.start :]).items():
                record = lane, offset
                known = left.get(record, _NOWHERE) | self._places.get(record, _NOWHERE)
                for _ in range(count - len(known) - entered[record]):
                    places = self.remove(lane, offset)
            if places:
                starts.append((lane, places))
        return starts

    def remove_partition(self, name: TopicPartition) -> None:
        """Record that a partition is released: its records remain outstanding."""
        for key, places in list(self._places.items()):
            places.difference_update([each for each in places if each[0] == name])
            if not places:
                del self._places[key]
                self._unread[key[0]] = None

    # ---- questions

    def parked(self) -> Iterator[ParkedLane]:
        """Yield the lanes, those longest in the ladder first."""
        for lane, line in self._lines.items():
            place = min(self._places.get((lane, line.head), ()), default=None)
            yield ParkedLane(lane, line.head, len(line) - 1, line.since, place)
