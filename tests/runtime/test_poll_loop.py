"""What the poll loop tells the Engine of time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

from tests.engine.driver import Driven
from window_consumer.engine.decisions import Assigned, EngineRules
from window_consumer.engine.engine import Engine
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.retry_topics import Level, RetryTopicLevel
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import LimitRules
from window_consumer.model import headers as names
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Batch, TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.inspection import Inspection
from window_consumer.runtime.poll_loop import LoopRules, PollLoop, PollLoopParts
from window_consumer.runtime.topic_watch import LogEnds, TopicNews
from window_consumer.runtime.worker_log import WorkerLog
from window_consumer.runtime.writing.outlet import SeparateWrites
from window_consumer.testing.clock import ManualClock
from window_consumer.testing.fakes.broker import FakeBroker

PAUSED = TopicPartition("paused", 0)
LEVEL = TopicPartition("g.orders.retry.1s", 0)


class LateSource:
    """A Source whose poll waits for half a second and then brings a copy."""

    slots = 1
    """It stands for the pool, too."""

    def __init__(self, clock: ManualClock, loops: list[PollLoop]):
        self._clock = clock
        self._loops = loops
        broker = FakeBroker()
        broker.create_topic(LEVEL.topic)
        due = clock.wall_ms() + 1000
        self._message = broker.produce(LEVEL.topic, headers=[(names.NOT_BEFORE, b"%d" % due)])

    def subscribe(self, topics: Sequence[str], listener: object) -> None:
        """Nothing to do."""

    def poll(self, _max_records: int, _timeout_s: float) -> list[Batch]:
        self._clock.advance(0.5)
        self._loops[0].stop()
        return [Batch.of(LEVEL, [self._message])]

    def __getattr__(self, _name: str) -> Any:
        return lambda *_, **__: {}


class LongWait:
    """A completions queue in which nothing comes for five seconds; then the worker may leave."""

    def __init__(self, clock: ManualClock, loops: list[PollLoop]):
        self._clock = clock
        self._loops = loops
        self._until = clock.now() + 5.0

    def put(self, item: None) -> None:
        """Nobody waits for it."""

    def get(self, timeout: float) -> None:
        if self._clock.now() < self._until:
            self._clock.advance(timeout)
            raise Empty
        self._loops[0].leave()

    def get_nowait(self) -> None:
        raise Empty


class Warnings(WorkerLog):
    """A log that keeps the events of warnings."""

    def __init__(self) -> None:
        super().__init__("charge", logging.getLogger("tests.poll_loop"), lambda: 0.0)
        self.events: list[LogEvent] = []

    def warn(self, event: LogEvent, text: str, **data: object) -> None:
        self.events.append(event)
        super().warn(event, text, **data)


def parts_of(source: Any, engine: Engine, clock: ManualClock, **others: Any) -> PollLoopParts:
    """Return parts of which the ones that are not named do nothing."""
    given = {
        "completions": SimpleQueue(),
        "pool": source,
        "worker_log": Warnings(),
        "on_phase": lambda _phase: None,
    }
    return PollLoopParts(
        source=source,
        engine=engine,
        outlet=SeparateWrites(source, source, engine.copy_of),
        offset_resets=source,
        clock=clock,
        **{"assignments": source, **given, **others},
    )


def test_who_waits_in_turns_for_what_takes_long_has_not_stood_still() -> None:
    clock = ManualClock(now=100.0)
    loops: list[PollLoop] = []
    reports = Warnings()
    engine = Driven.make(EngineRules(slots=1))
    source = LateSource(clock, loops)
    waits = LongWait(clock, loops)
    loop = PollLoop(
        "w",
        parts_of(source, engine, clock, completions=waits, worker_log=reports),
        LoopRules(topics=()),
    )
    loops.append(loop)
    loop.stop()
    loop.thread.start()
    loop.thread.join(60)
    assert not loop.thread.is_alive()
    assert clock.now() >= 105.0
    assert LogEvent.PROCESS_FROZEN not in reports.events


def test_what_a_poll_that_waited_brings_is_due_by_the_time_it_came() -> None:
    clock = ManualClock(now=100.0)
    loops: list[PollLoop] = []
    retry_levels = {LEVEL.topic: RetryTopicLevel("orders", Level("1s", 1.0), is_copy=True)}
    engine = Driven.make(EngineRules(slots=1), retry_levels)
    engine.on_assigned([Assigned(LEVEL, 0, committed=(0, ""))], clock.now())
    noted: list[float] = []
    honest = engine.on_records

    def on_records(batch: Batch, now: float, wall_ms: float) -> bool:
        taken = honest(batch, now, wall_ms)
        noted.append(engine.partitions[LEVEL].next_due)
        return taken

    engine.on_records = on_records  # type: ignore[method-assign] # to look in between
    nothing: Any = LateSource(clock, loops)
    parts = parts_of(nothing, engine, clock)
    loops.append(PollLoop("w", parts, LoopRules(topics=())))
    loops[0].leave()
    loops[0].thread.start()
    loops[0].thread.join(60)
    assert noted[0] == 101.0


def test_news_of_topics_tell_the_engine_which_partitions_there_are() -> None:
    clock = ManualClock(now=100.0)
    copies = TopicPartition(LEVEL.topic, 3)
    retry_levels = {LEVEL.topic: RetryTopicLevel("orders", Level("1s", 1.0), is_copy=True)}
    engine = Driven.make(EngineRules(slots=1, ordering="key"), retry_levels)
    engine.on_assigned([Assigned(copies, 0, committed=(0, ""))], clock.now())
    assert HoldReason.NOT_OWNER in engine.partitions[copies].holds
    nothing: Any = LateSource(clock, [])
    completions: SimpleQueue[Any] = SimpleQueue()
    parts = PollLoopParts(
        source=nothing,
        engine=engine,
        pool=nothing,
        outlet=nothing,
        completions=completions,
        assignments=nothing,
        offset_resets=nothing,
        worker_log=Warnings(),
        clock=clock,
        on_phase=lambda _phase: None,
    )
    loop = PollLoop("w", parts, LoopRules(topics=("orders", LEVEL.topic)))
    completions.put(TopicNews({"orders": TopicFacts(3, None), LEVEL.topic: TopicFacts(4, None)}))
    loop.mailbox.take(0.0)
    assert HoldReason.NOT_OWNER not in engine.partitions[copies].holds


class FewSlots:
    """A pool that is asked for slots and does not have them yet."""

    slots = 8

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.is_ready = False

    def use(self, slots: int) -> None:
        self.asked.append(slots)


def test_the_limiter_learns_whether_its_slots_are_there_and_the_pool_what_is_needed() -> None:
    clock = ManualClock(now=100.0)
    loops: list[PollLoop] = []
    engine = Driven.make(EngineRules(slots=8, limit=LimitRules(first=2)))
    nothing: Any = LateSource(clock, loops)
    pool = FewSlots()
    loops.append(PollLoop("w", parts_of(nothing, engine, clock, pool=pool), LoopRules(topics=())))
    assert pool.asked == [2]
    loops[0]._turn()
    reported = [engine.slot_limit.slots_ready]
    pool.is_ready = True
    loops[0]._turn()
    assert [*reported, engine.slot_limit.slots_ready] == [False, True]
    assert pool.asked[1:] == [2, 2]  # what rests for long is let go of then


def test_a_picture_that_cannot_be_taken_stops_nothing() -> None:
    class Blind(LateSource):
        def log_ends(self, _names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            raise RuntimeError("closed")

    clock = ManualClock(now=100.0)
    loops: list[PollLoop] = []
    reports = Warnings()
    engine = Driven.make(EngineRules(slots=1))
    parts = parts_of(Blind(clock, loops), engine, clock, worker_log=reports)
    loops.append(PollLoop("w", parts, LoopRules(topics=())))
    loops[0].thread.start()
    assert Inspection(loops[0].mailbox, parts.source).windows(60.0) is None
    loops[0].leave()
    loops[0].thread.join(60)
    assert loops[0].failure is None
    assert LogEvent.REQUEST_FAILED in reports.events


def test_partitions_that_are_not_fetched_are_watched_and_their_ends_come_from_there() -> None:
    class Read(LateSource):
        def log_ends(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(names, 5)

    class NothingWaits(Warnings):
        def retry(self, _now: float) -> list[Assigned]:
            return []

    clock = ManualClock(now=100.0)
    loops: list[PollLoop] = []
    watched: list[Sequence[TopicPartition]] = []
    engine = Driven.make(EngineRules(slots=1))
    engine.on_assigned([Assigned(name, 0) for name in (LEVEL, PAUSED)], clock.now())
    engine.partitions[PAUSED].set_hold(HoldReason.BACKPRESSURE, held=True)
    engine.budget.should_resume = lambda *_: False  # type: ignore[method-assign] # it stays so
    source, nothing = Read(clock, loops), NothingWaits()
    parts = parts_of(source, engine, clock, assignments=nothing, on_paused=watched.append)
    loop = PollLoop("w", parts, LoopRules(topics=()))
    loops.append(loop)
    parts.completions.put(LogEnds({PAUSED: 9}))
    loop.mailbox.take(0.0)
    loop._run_periodic(clock.now())
    assert watched == [[PAUSED]]
    loop.thread.start()
    picture = Inspection(loop.mailbox, source).windows(60.0)
    loop.leave()
    loop.thread.join(60)
    assert picture is not None
    assert {each.name: each.lag.records for each in picture.partitions} == {LEVEL: 5, PAUSED: 9}


def test_who_was_thrown_out_is_not_in_the_group_until_the_next_share() -> None:
    clock = ManualClock(now=100.0)
    engine = Driven.make(EngineRules(slots=1))
    loop = PollLoop(
        "w", parts_of(LateSource(clock, []), engine, clock), LoopRules(topics=("orders",))
    )
    it = loop.ownership
    seen = [it.in_group]
    for tell in (it.on_assigned, it.on_revoked, it.on_assigned, it.on_lost):
        tell([])
        seen.append(it.in_group)
    assert seen == [False, True, True, True, False]


def test_a_poll_thread_is_silent_for_as_long_as_it_was_not_seen() -> None:
    clock = ManualClock(now=100.0)
    engine = Driven.make(EngineRules(slots=1))
    loops: list[PollLoop] = []
    loop = PollLoop("w", parts_of(LateSource(clock, loops), engine, clock), LoopRules(topics=()))
    loops.append(loop)
    clock.advance(61.0)
    assert loop.silent_s == 61.0
    loop._turn()
    assert loop.silent_s <= 1.0
