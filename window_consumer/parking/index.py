"""The lanes in the ladder: which of their records are outstanding, by original offset.

A record is outstanding from its delivery to its outcome, wherever it is: in the source, a level,
the entry topic or the park topic. In a lane that is in the ladder, only the outstanding record with
the smallest original offset may start. Everything else follows from this rule: a successor that
comes from the source is parked, and the next record starts when the first one has ended.

One index belongs to one source partition. It is rebuilt at each assignment, from what the ladder's
topics hold.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator
from enum import Enum

from attrs import define, field, frozen

Lane = Hashable
"""A key."""


class SourceTurn(Enum):
    """What happens to a record of the source topic at its turn."""

    CALL = "call"
    PARK = "park"
    """Its lane is in the ladder: a copy follows in the park topic."""
    FINISH = "finish"
    """Its copy is in the ladder already, since before a crash or a rebalance."""


@frozen
class ParkLimits:
    """The most that may be parked; beyond, the source partition pauses."""

    max_keys: int = 100_000
    max_records: int = 1_000_000


@define
class _Line:
    """The outstanding records of one lane: 8 bytes each, sorted."""

    offsets: array[int] = field(factory=lambda: array("q"))
    start: int = 0
    """Those before have ended. They are removed together."""

    def __len__(self) -> int:
        return len(self.offsets) - self.start

    @property
    def head(self) -> int:
        return self.offsets[self.start]

    def place(self, offset: int) -> int:
        return bisect_left(self.offsets, offset, self.start)

    def has(self, offset: int) -> bool:
        at = self.place(offset)
        return at < len(self.offsets) and self.offsets[at] == offset

    def add(self, offset: int) -> bool:
        """Add an offset, usually the largest; return False if it is there."""
        at = self.place(offset)
        if at < len(self.offsets) and self.offsets[at] == offset:
            return False
        self.offsets.insert(at, offset)
        return True

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
    """The outstanding records of the lanes in the ladder. Owner: poll thread."""

    def __init__(self, limits: ParkLimits):
        self._limits = limits
        self._lines: dict[Lane, _Line] = {}
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

    def at_turn(self, lane: Lane | None, offset: int) -> SourceTurn:
        """Return what happens to a record of the source topic; one without a lane is called."""
        line = None if lane is None else self._lines.get(lane)
        if line is None:
            return SourceTurn.CALL
        return SourceTurn.FINISH if line.has(offset) else SourceTurn.PARK

    def may_start(self, lane: Lane | None, offset: int) -> bool:
        """Return whether a record of the ladder may start: no earlier one of its lane is left."""
        line = None if lane is None else self._lines.get(lane)
        return line is None or offset <= line.head

    def enter(self, lane: Lane, offset: int) -> None:
        """Record that a record is in the ladder, once its copy is acked or found by the scan."""
        line = self._lines.get(lane)
        if line is None:
            line = self._lines[lane] = _Line()
        self.records += line.add(offset)

    def end(self, lane: Lane, offset: int) -> int | None:
        """Record a record's outcome; return the offset that may start now, None if none waits."""
        line = self._lines.get(lane)
        if line is None or not line.remove(offset):
            return None
        self.records -= 1
        if not line:
            del self._lines[lane]
            return None
        return line.head if line.head > offset else None

    def head(self, lane: Lane) -> int | None:
        """Return the smallest outstanding offset of a lane; None if it is not in the ladder."""
        line = self._lines.get(lane)
        return None if line is None else line.head

    def followers(self) -> Iterator[tuple[Lane, int, int]]:
        """Yield each lane with its head's offset, and how many records follow that."""
        for lane, line in self._lines.items():
            yield lane, line.head, len(line) - 1

    def scan(self, found: Iterable[tuple[Lane | None, int]]) -> None:
        """Enter what the ladder's topics hold: the keys and original offsets of open records."""
        for lane, offset in found:
            if lane is not None:
                self.enter(lane, offset)
