"""A stop has one budget, however many of its steps take as long as they may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from queue import Empty
from typing import Any

from tests.engine.driver import Driven
from tests.runtime.test_poll_loop import Warnings, parts_of
from window_consumer.engine.decisions import Assigned, EngineRules
from window_consumer.model.errors import CommitFailedError
from window_consumer.model.protocols import Batch, Commit, CommitResults, TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.worker_snapshot import Phase
from window_consumer.runtime.partitions.assignments import Assignments
from window_consumer.runtime.partitions.start_offsets import CommittedStartOffsets
from window_consumer.runtime.poll_loop import ENDING_S, LEAVING_S, LoopRules, PollLoop
from window_consumer.testing.clock import ManualClock
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.source import FakeSource

ORDERS = TopicPartition("orders", 0)
STOP_S = 20.0


class SlowSource(FakeSource):
    """Its cluster answers at the last moment, and refuses commits; closing takes all its time."""

    def __init__(self, broker: FakeBroker, clock: ManualClock):
        super().__init__(broker.topics, broker.group("shop"))
        self._clock = clock

    def facts(self, topics: Sequence[str], timeout_s: float) -> Mapping[str, TopicFacts]:
        self._clock.advance(timeout_s)
        return super().facts(topics, timeout_s)

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        self._clock.advance(timeout_s)
        refusal = CommitFailedError("the coordinator is loading")
        return {commit.name: refusal for commit in commits}

    def close(self, timeout_s: float) -> bool:
        self._clock.advance(timeout_s)
        return super().close(timeout_s)


class HangingCalls:
    """A pool whose calls can be ended, but do not end."""

    ending = "cancelled"

    def interrupt(self, slices: Sequence[Any]) -> bool:
        return bool(slices)

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


class NothingComes:
    """A completions queue in which nothing ever comes."""

    def __init__(self, clock: ManualClock):
        self._clock = clock

    def put(self, item: object) -> None:
        """Nobody reads it."""

    def get(self, timeout: float) -> None:
        self._clock.advance(timeout)
        raise Empty

    def get_nowait(self) -> None:
        raise Empty


def test_the_steps_of_a_stop_share_one_budget() -> None:
    clock = ManualClock(now=100.0)
    broker = FakeBroker()
    broker.create_topic("orders")
    source = SlowSource(broker, clock)
    engine = Driven.make(EngineRules(slots=1))
    reports = Warnings()
    assignments = Assignments(
        source, CommittedStartOffsets(source, "earliest", reports.warn), reports.warn
    )
    drained: list[float] = []

    def on_phase(phase: Phase) -> None:
        if phase is Phase.DRAINED:
            drained.append(clock.now())
            loop.leave()

    parts = parts_of(
        source,
        engine,
        clock,
        completions=NothingComes(clock),
        pool=HangingCalls(),
        worker_log=reports,
        assignments=assignments,
        on_phase=on_phase,
    )
    loop = PollLoop("w", parts, LoopRules(topics=("orders",), stop_timeout_s=STOP_S))
    (message,) = [broker.produce(*ORDERS)]
    engine.on_assigned([Assigned(ORDERS, 0)], clock.now())
    assignments.topic_ids[ORDERS] = "id-1"
    (opening,) = engine.on_tick(clock.now(), clock.wall_ms()).commit
    engine.on_committed({opening.name: None}, clock.now())
    engine.on_records(Batch.of(ORDERS, [message]), clock.now(), 0.0)
    (slice_,) = engine.on_tick(clock.now(), clock.wall_ms()).dispatch
    next(slice_.unclaimed)
    slice_.started = clock.now()
    loop.stop()
    loop.thread.start()
    loop.thread.join(60)
    assert not loop.thread.is_alive()
    assert loop.unfinished == 1
    (over,) = drained
    assert 100.0 + STOP_S <= over <= 100.0 + STOP_S + ENDING_S + 0.01
    assert clock.now() <= over + LEAVING_S + 0.01
    assert ENDING_S + LEAVING_S < 5.0
