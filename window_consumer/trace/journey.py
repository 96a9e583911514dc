"""A record's journey: its steps in causal order.

Clocks differ, so causality decides the order rather than time, and steps whose time contradicts it
are marked. The order and number of times in which events arrive do not matter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from attrs import frozen

from window_consumer.model.outcome import OUTCOMES
from window_consumer.trace.event import Role, Step, TraceEvent

_NEVER: Final = 2**62
_ENDS: Final = {row.step: row.end for row in OUTCOMES if row.step}
"""How a journey ends, or continues, with the step of an outcome."""
_ON_THE_WAY: Final[dict[str, int]] = {
    Step.SENT: 0,
    Step.SEND_FAILED: 0,
    Step.RECEIVED: 1,
    Step.REDRIVEN: 2,
    Step.REPLAYED: 2,
}
_AMONG_EQUALS: Final[dict[str, int]] = {
    **_ON_THE_WAY,
    Step.STALLED: 3,
    Step.FAILED: 3,
    **{step: 4 if end == "good" else 5 for step, end in _ENDS.items()},
}
"""The order of steps with equal times."""
Place = tuple[str, int | None, int | None]


@frozen
class Stop:
    """One displayed step."""

    event: TraceEvent
    after_us: int
    """Microseconds since the start of the journey."""
    is_early: bool
    """Its time is earlier than its cause's, because clocks differ."""


@frozen
class JourneyHop:
    """The steps of a record at one position in Kafka, as one group saw them."""

    place: Place
    stops: tuple[Stop, ...]


@frozen
class JourneyBranch:
    """The path of a record through one group; None if only its producer recorded it."""

    group: str | None
    hops: tuple[JourneyHop, ...]

    @property
    def end(self) -> str | None:
        """Return the record's final step, None while there is none."""
        # A record that a rebalance delivered again is still finished.
        last = self.hops[-1].stops if self.hops else ()
        found = [stop.event.step for stop in last if _ENDS.get(stop.event.step, "moved") != "moved"]
        return found[-1] if found else None

    @property
    def went_wrong(self) -> bool:
        """Return whether it ended other than by the return of its handler."""
        return self.end is not None and _ENDS[self.end] == "bad"

    @property
    def attempts(self) -> int:
        """Return the number of handler calls."""
        return max((stop.event.attempt or 0 for hop in self.hops for stop in hop.stops), default=0)

    @property
    def redrives(self) -> int:
        """Return the number of manual redrives."""
        return sum(_has(hop, Step.REDRIVEN) for hop in self.hops)

    @property
    def replays(self) -> int:
        """Return the number of replays."""
        return sum(_has(hop, Step.REPLAYED) for hop in self.hops)


@frozen
class Passage:
    """One record's part of the journey."""

    record_id: str | None
    key: str | None
    tags: str | None
    place: Place
    """The position of its first delivery, or where that was expected."""
    sent: tuple[Stop, ...]
    ways: tuple[JourneyBranch, ...]


@frozen
class Journey:
    """The steps of a record and of the records that it caused."""

    began_us: int
    """When the first of them was sent or received, in microseconds since 1970."""
    lasted_us: int
    passages: tuple[Passage, ...]
    """The record itself first, then the records that its handlers sent, ordered by time."""
    has_skew: bool
    """The time of some step is earlier than its cause's."""

    @classmethod
    def of(cls, events: Iterable[TraceEvent]) -> Journey | None:
        """Return the journey of these events, in any order; None without events."""
        once = {event.event_id: event for event in events}
        unique = sorted(once.values(), key=_by_time)
        if not unique:
            return None
        by_record: dict[str | None, list[TraceEvent]] = {}
        for event in unique:
            by_record.setdefault(event.record_id, []).append(event)
        roots = {event.root_id for event in unique}
        order = sorted(
            by_record, key=lambda name: (name not in roots, _begin(by_record[name][0]), name or "")
        )
        ordered = [_places(by_record[name]) for name in order]
        first = ordered[0][0][2][0]
        began = _begin(first)
        passages = tuple(_passage(places, began) for places in ordered)
        stops = [stop for each in passages for stop in _stops(each)]
        return cls(
            began_us=began,
            lasted_us=max(0, *(stop.after_us for stop in stops)),
            passages=passages,
            has_skew=any(stop.is_early for stop in stops),
        )


_Hop = tuple[str | None, Place, list[TraceEvent]]
"""A group (None: the producer), a position, and its steps in order."""


def _places(events: Sequence[TraceEvent]) -> list[_Hop]:
    """Return a record's hops: the producer first, then each group's, from the source onwards."""
    found: dict[tuple[str | None, Place], list[TraceEvent]] = {}
    for event in events:
        group = None if event.role == Role.PRODUCER else event.group or ""
        found.setdefault((group, (event.topic, event.partition, event.offset)), []).append(event)
    of_group: dict[str | None, list[_Hop]] = {}
    for (group, place), steps in found.items():
        of_group.setdefault(group, []).append((group, place, steps))
    groups = sorted(of_group, key=lambda group: (group is not None, group or ""))
    return [hop for group in groups for hop in _by_cause(of_group[group])]


def _by_cause(hops: Sequence[_Hop]) -> list[_Hop]:
    """Order a group's hops by their attempt numbers, which increase regardless of clocks.

    They start over with each replay. Hops without a known call are ordered by time.
    """
    timed = sorted(hops, key=lambda hop: (not _is_source(hop), hop[2][0].time_us, hop[1][0]))
    replays = sorted(
        event.time_us for hop in hops for event in hop[2] if event.step == Step.REPLAYED
    )
    called = [hop for hop in timed if _attempt(hop) is not None]
    called.sort(
        key=lambda hop: (
            not _is_source(hop),
            bisect_right(replays, hop[2][-1].time_us) if replays else 0,
            _attempt(hop),
        )
    )
    return [hop if _attempt(hop) is None else called.pop(0) for hop in timed]


def _is_source(hop: _Hop) -> bool:
    first = hop[2][0]
    return hop[1] == (first.orig_topic, first.orig_partition, first.orig_offset)


def _attempt(hop: _Hop) -> int | None:
    return min((event.attempt for event in hop[2] if event.attempt is not None), default=None)


def _passage(hops: Sequence[_Hop], began_us: int) -> Passage:
    sent: list[Stop] = []
    ways: dict[str, list[JourneyHop]] = {}
    handed_on = -_NEVER
    for group, place, steps in hops:
        if group is None:
            sent += _stops_of(steps, began_us, -_NEVER)
            handed_on = max(handed_on, *map(_begin, steps))
            continue
        earlier = ways.setdefault(group, [])
        since = handed_on if not earlier else _left(earlier[-1])
        earlier.append(JourneyHop(place, tuple(_stops_of(steps, began_us, since))))
    events = [event for _, _, steps in hops for event in steps]
    first = events[0]
    place = (
        first.orig_topic or first.topic,
        first.partition if first.orig_partition is None else first.orig_partition,
        first.offset if first.orig_offset is None else first.orig_offset,
    )
    return Passage(
        record_id=first.record_id,
        key=next((event.key for event in events if event.key is not None), None),
        tags=next((event.tags for event in events if event.tags is not None), None),
        place=place,
        sent=tuple(sent),
        ways=tuple(JourneyBranch(group, tuple(hops)) for group, hops in ways.items()),
    )


def _stops_of(steps: Sequence[TraceEvent], began_us: int, since_us: int) -> list[Stop]:
    return [
        Stop(event, event.time_us - began_us, is_early=event.time_us < since_us) for event in steps
    ]


def _left(hop: JourneyHop) -> int:
    """Return a time at which the record had certainly not left the position."""
    failed = [stop.event for stop in hop.stops if stop.event.step == Step.FAILED]
    last = max((event.attempt or 0 for event in failed), default=0)
    # A crash may repeat the last call: then its first time counts.
    times = [event.time_us for event in failed if (event.attempt or 0) == last]
    return min(times or [stop.event.time_us for stop in hop.stops])


def _stops(passage: Passage) -> Iterable[Stop]:
    yield from passage.sent
    for way in passage.ways:
        for hop in way.hops:
            yield from hop.stops


def _has(hop: JourneyHop, step: Step) -> bool:
    return any(stop.event.step == step for stop in hop.stops)


def _begin(event: TraceEvent) -> int:
    """Return when a step began: a send is recorded when its ack arrives."""
    is_send = event.role == Role.PRODUCER
    return event.time_us - (event.duration_us or 0) if is_send else event.time_us


def _by_time(event: TraceEvent) -> tuple[int, int, str]:
    return event.time_us, _AMONG_EQUALS.get(event.step, 0), event.event_id
