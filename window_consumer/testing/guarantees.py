"""Guarantees as objects: given the events of a test, they report violations.

Each takes the events of ``events`` in order of time (``in_order`` merges several processes' files)
and ignores irrelevant ones. They do not depend on windows and engines, so the same objects judge
the simulator, a test of one process and many processes on a real broker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol, TypeGuard

from window_consumer.model.record import TopicPartition
from window_consumer.testing.events import (
    DeadLettered,
    Ended,
    Event,
    Killed,
    LogEnd,
    OffsetCommitted,
    OutlivedLogged,
    Produced,
    Started,
)

Place = tuple[TopicPartition, int]
"""Where a record is: partition and offset."""

Lane = tuple[TopicPartition, str]
"""Partition and key."""


class Guarantee(Protocol):
    """A promise that a history keeps or breaks."""

    def feed(self, event: Event) -> None:
        """Process the next event."""

    def violations(self) -> list[str]:
        """Return the violations so far; empty if the promise was kept."""


def check(events: Iterable[Event], *guarantees: Guarantee) -> list[str]:
    """Feed a history, in order of time, to guarantees and return all violations."""
    for event in events:
        for guarantee in guarantees:
            guarantee.feed(event)
    return [each for guarantee in guarantees for each in guarantee.violations()]


class NothingLost:
    """Every record that was produced was processed, skipped, dropped by rule or dead-lettered."""

    def __init__(self) -> None:
        self._open: dict[Place, Produced] = {}
        self._over: set[Place] = set()

    def feed(self, event: Event) -> None:
        """Process the next event."""
        if isinstance(event, Produced):
            self._open[_place(event)] = event
        elif isinstance(event, DeadLettered) or (_is_final(event)):
            self._over.add(_place(event))

    def violations(self) -> list[str]:
        """Return the records that have no final outcome."""
        return [
            f"lost: {_named(place)} (id {event.id}) has no final outcome"
            for place, event in self._open.items()
            if place not in self._over
        ]


class OrderPerKey:
    """A record starts only when all earlier ones of its key and partition are over.

    Records that run again after a crash or a rebalance begin at or after the committed offset.
    Records without a key have no order. A failed call leaves its record in line unless its result
    is ``spent``; NothingLost checks that such a record is in the dead-letter topic.
    """

    def __init__(self) -> None:
        self._lines: dict[Lane, OrderedDict[int, None]] = {}
        """The offsets of each key that are not over, ascending."""
        self._lane_of: dict[Place, Lane] = {}
        self._last: dict[Lane, int] = {}
        self._called: dict[Lane, Started] = {}
        """The last call; its batch may hold further records of the lane."""
        self._committed: dict[TopicPartition, int] = {}
        self._violations: list[str] = []

    def feed(self, event: Event) -> None:
        """Process the next event."""
        if isinstance(event, Produced):
            if event.key is not None:
                lane = (_partition(event), event.key)
                self._lane_of[_place(event)] = lane
                self._lines.setdefault(lane, OrderedDict())[event.offset] = None
        elif isinstance(event, Started):
            if event.key is not None and event.attempt == 1:
                self._start(event, (_partition(event), event.key))
        elif isinstance(event, Ended):
            ended = self._lane_of.get(_place(event))
            if ended is not None and event.result != "failed":
                self._lines[ended].pop(event.offset, None)
        elif isinstance(event, OffsetCommitted):
            self._committed[_partition(event)] = event.offset

    def _start(self, event: Started, lane: Lane) -> None:
        place = f"order: {_named(_place(event))} of key {event.key}"
        first = next(iter(self._lines.get(lane, ())), event.offset)
        before = self._called.get(lane)
        self._called[lane] = event
        in_turn = before is not None and _same_call(before, event) and before.offset < event.offset
        if first < event.offset and not in_turn:
            text = f"{place} started on {event.member} before offset {first} was over"
            self._violations.append(text)
        committed = self._committed.get(lane[0], 0)
        if event.offset <= self._last.get(lane, -1) and event.offset < committed:
            text = f"{place} ran again on {event.member} although {committed} was committed"
            self._violations.append(text)
        self._last[lane] = event.offset

    def violations(self) -> list[str]:
        """Return the records that started too early, or needlessly again."""
        return list(self._violations)


class OneAtATimePerKey:
    """No two calls for records of one key and partition overlap, across all members.

    An overlap with a call that the log reported as outlived is allowed.
    """

    def __init__(self) -> None:
        self._running: dict[Lane, list[Started]] = {}
        self._overlaps: list[tuple[Started, Started]] = []
        self._logged: set[Place] = set()

    def feed(self, event: Event) -> None:
        """Process the next event."""
        if isinstance(event, Started) and event.key is not None:
            running = self._running.setdefault((_partition(event), event.key), [])
            self._overlaps.extend(
                (earlier, event) for earlier in running if not _same_call(earlier, event)
            )
            running.append(event)
        elif isinstance(event, Ended):
            self._end(event)
        elif isinstance(event, Killed):
            for running in self._running.values():
                running[:] = [call for call in running if call.member != event.member]
        elif isinstance(event, OutlivedLogged):
            self._logged.add(_place(event))

    def _end(self, event: Ended) -> None:
        if event.key is None:
            return
        running = self._running.get((_partition(event), event.key), [])
        for index, call in enumerate(running):
            if (call.member, call.offset) == (event.member, event.offset):
                del running[index]
                return

    def violations(self) -> list[str]:
        """Return the calls that ran beside another of their key."""
        return [
            f"at once: {_named(_place(later))} of key {later.key} started on {later.member} while"
            f" offset {earlier.offset} ran on {earlier.member}"
            for earlier, later in self._overlaps
            if _place(earlier) not in self._logged and _place(later) not in self._logged
        ]


class CommittedReachesEnd:
    """When everything is over, each partition's committed offset is its log's end."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    def feed(self, event: Event) -> None:
        """Process the next event."""
        if isinstance(event, OffsetCommitted):
            self._committed[_partition(event)] = event.offset
        elif isinstance(event, LogEnd):
            self._ends[_partition(event)] = event.offset

    def violations(self) -> list[str]:
        """Return the partitions that are not committed to their end."""
        return [
            f"not at the end: {name} ends at {end}, committed is {self._committed.get(name)}"
            for name, end in self._ends.items()
            if self._committed.get(name, 0) != end
        ]


class NoDuplicates:
    """No record is processed twice, provided that all stops and rebalances were clean."""

    def __init__(self) -> None:
        self._done: dict[Place, str] = {}
        self._violations: list[str] = []

    def feed(self, event: Event) -> None:
        """Process the next event."""
        if _is_final(event):
            place = _place(event)
            before = self._done.get(place)
            if before is not None:
                self._violations.append(
                    f"twice: {_named(place)} was processed on {before} and again on {event.member}"
                )
            self._done[place] = event.member

    def violations(self) -> list[str]:
        """Return the records that were processed twice."""
        return list(self._violations)


class NoLateReruns:
    """After a kill, no record runs again that had finished more than ``grace_s`` before it."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._done: dict[Place, float] = {}
        self._kills: list[Killed] = []
        self._violations: list[str] = []

    def feed(self, event: Event) -> None:
        """Process the next event."""
        if _is_final(event):
            self._done.setdefault(_place(event), event.time)
        elif isinstance(event, Killed):
            self._kills.append(event)
        elif isinstance(event, Started) and event.attempt == 1:
            self._start(event)

    def _start(self, event: Started) -> None:
        done = self._done.get(_place(event))
        if done is None:
            return
        for kill in self._kills:
            if done < kill.time - self._grace_s:
                self._violations.append(
                    f"too late: {_named(_place(event))} ran again on {event.member} although it"
                    f" had finished {kill.time - done:.3f} s before {kill.member} was killed"
                )
                return

    def violations(self) -> list[str]:
        """Return the records that ran again although they had finished early enough."""
        return list(self._violations)


def _same_call(one: Started, other: Started) -> bool:
    """Return whether two records are in one call of a batch handler."""
    return one.batch is not None and one.batch == other.batch


def _is_final(event: Event) -> TypeGuard[Ended]:
    return isinstance(event, Ended) and event.result in ("done", "skipped", "dropped")


def _partition(event: Produced | Started | Ended | OffsetCommitted | LogEnd) -> TopicPartition:
    return TopicPartition(event.topic, event.partition)


def _place(event: Produced | Started | Ended | DeadLettered | OutlivedLogged) -> Place:
    return TopicPartition(event.topic, event.partition), event.offset


def _named(place: Place) -> str:
    return f"{place[0]}@{place[1]}"
