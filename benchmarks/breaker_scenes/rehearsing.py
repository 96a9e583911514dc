"""Rehearses a scene: the Engine alone, with a clock of its own.

The broker is a list for each partition and the slots are steps of a loop, so a scene of minutes
takes seconds, and the same ones every time. A copy for a retry level is where a record's course
ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from attrs import define, field

from benchmarks.breaker_scenes.course import Change, Course, Departure, EndedCall
from benchmarks.breaker_scenes.scene import Scene
from benchmarks.breaker_scenes.services import ServiceCall
from window_consumer.engine.decisions import Assigned, Decisions, EngineRules
from window_consumer.engine.engine import Engine
from window_consumer.engine.guards.breaker_state import BreakerRules
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.protocols import Batch, Copy
from window_consumer.model.record import TopicPartition

_ACK_S = 0.002
_BEGAN_S = 1_000.0
_LONGEST_WAIT_S = 0.05
_WALL_MS = 1.7e12
_COPY = Copy("dead letters", None, None, None, ())
_DURATIONS = {"max_hold": "max_hold_s"}


class RehearsalError(Exception):
    """Raised by the handler where the service fails."""


_FAILURE = Failure(RehearsalError("down"), Fault("RehearsalError", "down", "", "f"))


class Note:
    """A message of a rehearsal."""

    __slots__ = ("_key", "_name", "_offset", "key_number", "number")

    def __init__(self, name: TopicPartition, offset: int, number: int, key: int):
        self._name = name
        self._offset = offset
        self._key = b"%d" % key
        self.key_number = key
        self.number = number

    def __len__(self) -> int:
        return 10

    def topic(self) -> str:
        """Return the topic."""
        return self._name.topic

    def partition(self) -> int:
        """Return the partition."""
        return self._name.partition

    def offset(self) -> int:
        """Return the offset."""
        return self._offset

    def key(self) -> bytes:
        """Return the key."""
        return self._key

    def value(self) -> bytes:
        """Return a value that is always the same."""
        return b"v" * 10

    def headers(self) -> None:
        """Return no headers."""

    def timestamp(self) -> tuple[int, int]:
        """Return a time that is always the same."""
        return 1, 1_700_000_000_000


@define
class Rehearsal:
    """A scene that is being rehearsed."""

    scene: Scene
    engine: Engine
    course: Course
    service: Any
    now_s: float = 0.0
    _logs: dict[TopicPartition, list[Any]] = field(factory=dict)
    _positions: dict[TopicPartition, int] = field(factory=dict)
    _paused: set[TopicPartition] = field(factory=set)
    _queue: deque[Slice] = field(factory=deque)
    _idle: int = 0
    _running: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(factory=list)
    _numbers: count[int] = field(factory=count)

    @classmethod
    def of(cls, scene: Scene, **breaker: Any) -> Rehearsal:
        """Prepare it, with keys of ``BreakerRules`` that differ."""
        service = scene.service()
        records = scene.traffic.records()
        course = Course(
            {each.number: each.at_s for each in records},
            frozenset(each.number for each in records if service.is_bad(each.number, each.key)),
        )
        rehearsal = cls(
            scene,
            Engine(_rules(scene, breaker), lambda: 0.5, {}, lambda *_: _COPY),
            course,
            service,
        )
        rehearsal._idle = scene.slots
        places = [TopicPartition("notes", each) for each in range(scene.traffic.partitions)]
        rehearsal._logs = {place: [] for place in places}
        rehearsal._positions = dict.fromkeys(places, 0)
        rehearsal.engine.on_assigned(
            [Assigned(place, 0, committed=(0, "")) for place in places], rehearsal._clock
        )
        rehearsal._at(0.0, rehearsal._writing(records))
        return rehearsal

    @property
    def _clock(self) -> float:
        return _BEGAN_S + self.now_s

    def play(self) -> Course:
        """Play it to its end; return what happened."""
        while self.now_s < self.scene.lasts_s and not self._is_over:
            self._turn()
            wait_s = self.engine.wait_s(self._clock, _LONGEST_WAIT_S)
            next_s = self._events[0][0] if self._events else inf
            self.now_s = max(self.now_s, min(next_s, self.now_s + max(wait_s, 1e-4)))
            while self._events and self._events[0][0] <= self.now_s:
                heappop(self._events)[2]()
        self.course.ended_s = self.now_s
        return self.course

    @property
    def _is_over(self) -> bool:
        there = len(self.course.written_s)
        return self.engine.counters.finished >= there

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        heappush(self._events, (at_s, next(self._numbers), act))

    def _writing(self, records: list[Any]) -> Callable[[], None]:
        rest = deque(records)

        def write() -> None:
            while rest and rest[0].at_s <= self.now_s:
                each = rest.popleft()
                place = TopicPartition("notes", each.key % self.scene.traffic.partitions)
                log = self._logs[place]
                log.append(Note(place, len(log), each.number, each.key))
            if rest:
                self._at(rest[0].at_s, write)

        return write

    def _turn(self) -> None:
        engine, clock = self.engine, self._clock
        self._fetch(engine.appetite())
        engine.on_log_ends({place: len(log) for place, log in self._logs.items()})
        decisions = engine.on_tick(clock, _WALL_MS)
        self._carry_out(decisions)
        for news in decisions.breaker:
            self.course.changes.append(Change(self.now_s, str(news.state), news.why))

    def _fetch(self, want: int) -> None:
        for place, log in self._logs.items():
            if want <= 0:
                return
            position = self._positions[place]
            if place in self._paused or position >= len(log):
                continue
            taken = log[position : position + want]
            self._positions[place] += len(taken)
            want -= len(taken)
            self.engine.on_records(Batch.of(place, list(taken)), self._clock, _WALL_MS)

    def _carry_out(self, decisions: Decisions) -> None:
        for place in decisions.pause:
            self._paused.add(place)
        for place, offset in decisions.resume:
            self._paused.discard(place)
            self._positions[place] = offset
        for failed in decisions.publish:
            self._at(self.now_s + _ACK_S, self._publishing(failed))
        self.engine.on_committed(
            dict.fromkeys((each.name for each in decisions.commit), None), self._clock
        )
        self._queue.extend(decisions.dispatch)
        while self._idle and self._queue:
            self._idle -= 1
            slice_ = self._queue.popleft()
            slice_.started = self._clock
            steps = self._all_at_once(slice_) if slice_.is_batch else self._one_by_one(slice_)
            self._step(slice_, steps)

    def _publishing(self, failed: Any) -> Callable[[], None]:
        def publish() -> None:
            self.engine.on_published(failed, None, self._clock)
            where = "dlq" if failed.level is None else failed.level.name
            departure = Departure(self.now_s, failed.message.number, where)
            self.course.departures.append(departure)

        return publish

    def _step(self, slice_: Slice, steps: Iterator[float]) -> None:
        lasts_s = next(steps, None)
        if lasts_s is not None:
            self._at(self.now_s + lasts_s, lambda: self._step(slice_, steps))
            return
        slice_.elapsed = self._clock - slice_.started
        self._idle += 1
        self.engine.on_completion(slice_, self._clock)

    def _one_by_one(self, slice_: Slice) -> Iterator[float]:
        failed_lanes = set()
        for message in slice_.unclaimed:
            lane = None if slice_.lane_of is None else slice_.lane_of(message)
            if lane is not None and lane in failed_lanes:
                slice_.deviate().held.append(message)
                continue
            ok = yield from self._call(slice_, [message])
            if not ok:
                failed_lanes.add(lane)

    def _all_at_once(self, slice_: Slice) -> Iterator[float]:
        if messages := list(slice_.unclaimed):
            yield from self._call(slice_, messages)

    def _call(self, slice_: Slice, messages: list[Any]) -> Generator[float, None, bool]:
        self._running += 1
        began_s, attempt = self.now_s, slice_.call.attempt
        answers = [
            self.service.call(
                ServiceCall(each.number, each.key_number, attempt, began_s, self._running)
            )
            for each in messages
        ]
        yield max(each.lasts_s for each in answers)
        self._running -= 1
        ok = all(each.ok for each in answers)
        if not ok:
            slice_.deviate().failed += [(each, _FAILURE) for each in messages]
        self.course.calls += (
            EndedCall(began_s, self.now_s, each.number, each.key_number, each.offset(), ok)
            for each in messages
        )
        return ok


def _rules(scene: Scene, breaker: Mapping[str, Any]) -> EngineRules:
    cells, cell_records = scene.window
    return EngineRules(
        slots=scene.slots,
        ordering=scene.ordering,
        retry=RetryRules(attempts=scene.attempts),
        breaker=BreakerRules(**{**_breaker(scene), **breaker}),
        batch=BatchRules(max_records=scene.batch) if scene.batch else None,
        window_cells=cells,
        cell_records=cell_records,
    )


def _breaker(scene: Scene) -> dict[str, Any]:
    seconds = {"30s": 30.0, "1m": 60.0}
    return {
        _DURATIONS.get(key, key): seconds.get(value, value) for key, value in scene.breaker.items()
    }


def rehearse(scene: Scene) -> dict[str, float]:
    """Rehearse a scene; return its figures."""
    course = Rehearsal.of(scene).play()
    free = Rehearsal.of(scene, enabled=False).play() if scene.compared else None
    return scene.judge(scene, course, free)
