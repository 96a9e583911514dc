"""Lanes: which ordering domains are busy, what holds them, and which record enters next.

The source partition and the retry topics' partitions with copies of its records are *siblings* and
share one Lanes object. Only this object knows what holds a lane.

* Everything that keeps a lane busy has a ``LaneHold``: a slice, a batch not yet sent, a failed
  record, unacked results. A hold counts once for each of its lanes.
* A lane is free when its last hold is released. If records wait for it, it is offered to their
  ordering, siblings in turn, and stays busy. Otherwise the next record may enter it.
* A hold of a released partition holds nothing: releasing it again changes nothing.
* None is not a lane. It may occur among lanes and is ignored.

Cost: entering or releasing is one set operation per slice, with one look-up per record. Only lanes
that have further holds or waiting records are handled one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Protocol

from window_consumer.model.record import Message

Lane = Hashable
"""An ordering domain within one partition."""

LaneOf = Callable[[Message], Lane | None]
"""Returns a message's lane; None if it is unordered."""


class LaneMember(Protocol):
    """An ordering that shares lanes; its records may wait for them."""

    @property
    def lines(self) -> dict[Lane, Any]:
        """The lanes for which records wait."""

    @property
    def ready(self) -> Collection[Lane]:
        """The lanes of ``lines`` that were offered and not entered."""

    def offer(self, lane: Lane) -> None:
        """Accept a lane that nothing holds; the ordering has a line for it."""

    def withdraw(self, lane: Lane) -> None:
        """Return an offered lane: it is held again."""


class LaneHold:
    """Lanes that one holder keeps busy. Owner: poll thread."""

    __slots__ = ("group", "lanes")

    def __init__(self, group: Lanes | None, lanes: Collection[Lane]):
        self.group = group
        self.lanes = lanes
        """Empty after release. A lane may occur several times; it counts once."""

    def release(self) -> None:
        """Release all lanes; a second call changes nothing."""
        group = self.group
        if group is None or (member := group.holds.pop(self, None)) is None:
            return
        lanes, self.lanes = self.lanes, ()
        if group.further or member.lines or len(group.members) > 1:
            group.free(lanes, member)
        else:
            group.busy.difference_update(lanes)

    def keep(self, lanes: Collection[Lane | None]) -> None:
        """Release all lanes but these."""
        group = self.group
        if group is None or not self.lanes:
            return
        kept: list[Lane] = []
        others: list[Lane] = []
        for lane in dict.fromkeys(self.lanes):
            (kept if lane in lanes else others).append(lane)
        self.lanes = kept
        group.free(others, group.holds[self])

    def merge(self, other: LaneHold) -> None:
        """Take over all lanes of another hold, which is empty afterwards."""
        if self.group is None or other.group is not self.group:
            return
        held = self._by_lane()
        twice = [lane for lane in dict.fromkeys(other.lanes) if lane in held]
        held.update(dict.fromkeys(other.lanes))
        other.lanes = twice  # each of the two holds counted them
        other.release()

    def part(self, lanes: Iterable[Lane | None]) -> LaneHold:
        """Move some of its lanes to a new hold."""
        group = self.group
        if group is None:
            return self
        held = self._by_lane()
        moved = [lane for lane in dict.fromkeys(lanes) if lane is not None and lane in held]
        for lane in moved:
            del held[lane]
        hold = LaneHold(group, moved)
        group.holds[hold] = group.holds[self]
        return hold

    def _by_lane(self) -> dict[Lane, None]:
        lanes = self.lanes if isinstance(self.lanes, dict) else dict.fromkeys(self.lanes)
        self.lanes = lanes
        return lanes


NO_HOLD = LaneHold(None, ())
"""The hold of unordered records."""


class Lanes:
    """The lanes of one group of siblings. Owner: poll thread."""

    def __init__(self) -> None:
        self.busy: set[Lane] = set()
        """Lanes that no new record may enter: they are held or offered."""
        self.further: dict[Lane, int] = {}
        """How many holds a lane has beyond its first; lanes with only one are absent."""
        self.holds: dict[LaneHold, LaneMember] = {}
        """All holds, each with its ordering."""
        self.members: list[LaneMember] = []
        """The orderings of the siblings."""

    def join(self, member: LaneMember) -> None:
        """Share the lanes with an ordering."""
        self.members.append(member)

    def leave(self, member: LaneMember) -> None:
        """Release all holds of an ordering, which must have no lines left."""
        for hold in [hold for hold, each in self.holds.items() if each is member]:
            hold.release()
        if member in self.members:
            self.members.remove(member)

    def enter(self, member: LaneMember, lanes: Collection[Lane]) -> LaneHold:
        """Hold lanes that are free, or that this ordering was offered and has taken."""
        busy = self.busy
        busy.update(lanes)
        busy.discard(None)
        hold = LaneHold(self, lanes)
        self.holds[hold] = member
        return hold

    def acquire(self, member: LaneMember, lanes: Iterable[Lane | None]) -> LaneHold:
        """Hold lanes in addition to their other holds: a lane is free once all are released."""
        wanted = [lane for lane in dict.fromkeys(lanes) if lane is not None]
        if not wanted:
            return NO_HOLD
        for lane in wanted:
            if lane not in self.busy:
                continue
            offered = next((each for each in self.members if lane in each.ready), None)
            if offered is None:
                self.further[lane] = self.further.get(lane, 0) + 1
            else:
                offered.withdraw(lane)
        return self.enter(member, wanted)

    def is_held(self, lane: Lane | None) -> bool:
        """Return whether something holds a lane; nothing does while it is only offered."""
        return lane in self.busy and not any(lane in each.ready for each in self.members)

    def only(self, hold: LaneHold) -> list[Lane]:
        """Return the hold's lanes that have no other hold and no waiting records."""
        contested = self._contested(hold.lanes)
        return [lane for lane in hold.lanes if lane is not None and lane not in contested]

    def free(self, lanes: Collection[Lane], member: LaneMember) -> None:
        """Release lanes that a hold of this ordering has given up."""
        self.busy.difference_update(lanes)
        contested = self._contested(lanes)
        if not contested:
            return
        # They have further holds, or are offered to a waiting ordering.
        self.busy |= contested
        further = self.further
        # In their own order: a set's order differs between processes.
        for lane in dict.fromkeys(lanes):
            if lane not in contested:
                continue
            if lane not in further:
                self.pass_on(lane, member)
            elif further[lane] == 1:
                del further[lane]
            else:
                further[lane] -= 1

    def pass_on(self, lane: Lane, member: LaneMember) -> None:
        """Offer a lane that nothing holds to the next waiting ordering, else free it.

        The ordering that held it comes last, so that lines take turns.
        """
        members = self.members
        if len(members) > 1 and member in members:
            after = members.index(member) + 1
            members = members[after:] + members[:after]
        for each in members:
            if lane in each.lines:
                each.offer(lane)
                return
        self.busy.discard(lane)

    def _contested(self, lanes: Collection[Lane]) -> set[Lane]:
        """Return the lanes that have further holds or waiting records."""
        contested: set[Lane] = self.further.keys() & lanes if self.further else set()
        for each in self.members:
            if each.lines:
                contested |= each.lines.keys() & lanes
        return contested
