"""A record's journey: its steps in the order in which one led to the other.

Clocks differ: what a step follows from tells more than its time, and where the two disagree the
step says so. The order in which events are given, and how often, makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import frozen

from window_consumer.trace.event import (
    Role,
    Step,
    TraceEvent,
)

_NEVER: Final = 2**62
_AMONG_EQUALS: Final[dict[str, int]] = {
    str(step): rank
    for rank, steps in enumerate(
        (
            (Step.SENT, Step.SEND_FAILED),
            (Step.RECEIVED,),
            (Step.REDRIVEN,),
            (Step.FAILED,),
            (Step.PROCESSED, Step.SKIPPED, Step.FILTERED),
            (Step.RETRIED, Step.DEAD_LETTERED, Step.EXPIRED, Step.DROPPED),
        )
    )
    for step in steps
}
"""Which of the steps of one time comes first."""

_ENDS: Final = {
    str(step)
    for step in (
        Step.PROCESSED,
        Step.SKIPPED,
        Step.FILTERED,
        Step.DEAD_LETTERED,
        Step.EXPIRED,
        Step.DROPPED,
    )
}
_BAD_ENDS: Final = {str(Step.DEAD_LETTERED), str(Step.EXPIRED), str(Step.DROPPED)}
Place = tuple[str, int | None, int | None]


@frozen
class Stop:
    """One step, as it is shown."""

    event: TraceEvent
    after_us: int
    """Since the journey began."""
    is_early: bool
    """By its clock it was before what it follows from: clocks differ."""


@frozen
class JourneyHop:
    """The steps of a record at one place of Kafka, seen by one group."""

    place: Place
    stops: tuple[Stop, ...]


@frozen
class JourneyBranch:
    """What one group made of a record, or nobody but its producer for None."""

    group: str | None
    hops: tuple[JourneyHop, ...]

    @property
    def end(self) -> str | None:
        """The step that it ended with, None while it has not."""
        # What came once more, because of a rebalance, is still finished.
        last = self.hops[-1].stops if self.hops else ()
        found = [stop.event.step for stop in last if stop.event.step in _ENDS]
        return found[-1] if found else None

    @property
    def went_wrong(self) -> bool:
        """Whether it ended otherwise than by its handler's return."""
        return self.end in _BAD_ENDS

    @property
    def attempts(self) -> int:
        """How often the handler was called."""
        return max((stop.event.attempt or 0 for hop in self.hops for stop in hop.stops), default=0)

    @property
    def redrives(self) -> int:
        """How often somebody has put it back."""
        return len({hop.place for hop in self.hops for stop in hop.stops if _is_redriven(stop)})


@frozen
class Passage:
    """One record's part of the journey."""

    record_id: str | None
    key: str | None
    tags: str | None
    place: Place
    """Where it was delivered first, or should have been."""
    sent: tuple[Stop, ...]
    ways: tuple[JourneyBranch, ...]


@frozen
class Journey:
    """Steps of a record and of those that came of it."""

    began_us: int
    """When the first of them was sent, or seen, since 1970."""
    lasted_us: int
    passages: tuple[Passage, ...]
    """The record itself first, then what its handlers sent, by their times."""
    has_skew: bool
    """Some step was before what it follows from, by its clock."""

    @classmethod
    def of(cls, events: Iterable[TraceEvent]) -> Journey | None:
        """Return the journey that these events tell, in whatever order; None for none."""
        once = {event.event_id: event for event in events}
        told = sorted(once.values(), key=_by_time)
        if not told:
            return None
        by_record: dict[str | None, list[TraceEvent]] = {}
        for event in told:
            by_record.setdefault(event.record_id, []).append(event)
        roots = {event.root_id for event in told}
        order = sorted(
            by_record,
            key=lambda name: (name not in roots, _begin(by_record[name][0]), name or ""),
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
"""A group (None: the producer), a place, and its steps in their order."""


def _places(events: Sequence[TraceEvent]) -> list[_Hop]:
    """Return a record's hops: first who sent it, then each group's from the source on."""
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
    """Order a group's hops: attempts count on from each to the next, whatever the clocks say.

    Where no call is known of there is only the time to go by.
    """
    timed = sorted(hops, key=lambda hop: (not _is_source(hop), hop[2][0].time_us, hop[1][0]))
    called = [hop for hop in timed if _attempt(hop) is not None]
    called.sort(key=lambda hop: (not _is_source(hop), _attempt(hop)))
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
    """Return when a record had surely not left a place yet."""
    failed = [stop.event for stop in hop.stops if stop.event.step == Step.FAILED]
    last = max((event.attempt or 0 for event in failed), default=0)
    # The last call may have been made again, after a crash: then the first of these counts.
    times = [event.time_us for event in failed if (event.attempt or 0) == last]
    return min(times or [stop.event.time_us for stop in hop.stops])


def _stops(passage: Passage) -> Iterable[Stop]:
    yield from passage.sent
    for way in passage.ways:
        for hop in way.hops:
            yield from hop.stops


def _is_redriven(stop: Stop) -> bool:
    return stop.event.step == Step.REDRIVEN


def _begin(event: TraceEvent) -> int:
    """Return when a step began: a send is told when its ack has come."""
    is_send = event.role == Role.PRODUCER
    return event.time_us - (event.duration_us or 0) if is_send else event.time_us


def _by_time(event: TraceEvent) -> tuple[int, int, str]:
    return event.time_us, _AMONG_EQUALS.get(event.step, 0), event.event_id
