"""Members whose levels differ, in schedules made of it: a lane and its copies have one owner."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Any

from attrs import evolve

from tests.simulation.planted import Planted
from window_consumer.engine.engine import Engine
from window_consumer.engine.retry.copy_record import CopyOrigin, Target, copy_of
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.model.protocols import Copy
from window_consumer.simulator.schedule import Action, SchedulePlan
from window_consumer.simulator.schedule_builder import draw
from window_consumer.simulator.simulator import simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 80

ACTIONS: dict[Action, float] = {
    "turn": 60.0,
    "work": 30.0,
    "produce": 10.0,
    "acks": 10.0,
    "start": 5.0,
    "levels": 3.0,
    "news": 2.0,
    "rebalance": 4.0,
}


def changing(rng: Random) -> SchedulePlan:
    """Draw a schedule in which levels change all the time, and many copies wait in them."""
    plan = draw(rng)
    engine = plan.engine
    retry = evolve(
        engine.retry,
        attempts=1,
        on_failure="overtake",
        levels=(Level("0", 0.0), Level("0.05", 0.05)),
        when_spent="dead_letter",
        on_oversize="hold",
    )
    return evolve(
        plan,
        engine=evolve(
            engine,
            slots=4,
            ordering=rng.choice(("key", "partition")),
            retry=retry,
            breaker=evolve(engine.breaker, enabled=False),
        ),
        handlers=evolve(
            plan.handlers, fails=0.5, slow=0.5, fatal=0.0, leaves=0.0, deadly=0.0, hangs=0.0
        ),
        loop=evolve(plan.loop, revoke_timeout_s=0.5),
        keys=(b"a",),
        members=3,
        partitions=2,
        copy_limit=100_000,
        on_no_offset="earliest",
        waits_s=(0.02, 0.2),
        actions=tuple(ACTIONS),
        weights=tuple(accumulate(ACTIONS.values())),
    )


class CallsCopiesAwayFromHome(Engine):
    """A copy is called by whoever owns its partition."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.lane_ownership.sort_out = lambda now: None  # type: ignore[method-assign] # noqa: ARG005 - a planted bug


def wider(rng: Random) -> SchedulePlan:
    """Draw the same with retry topics that are wider than their sources, and copies by key."""
    plan = changing(rng)
    return evolve(plan, wider=rng.randint(1, 3), strays=rng.choice((0.0, 0.3)), keys=(b"a", b"b"))


class CallsStraysWhereTheyLie(Engine):
    """A copy is called by whoever owns the partition that it happens to lie in."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.lane_ownership.assigned = lambda *_: None  # type: ignore[method-assign] # a planted bug


def by_key(failed: FailedRecord, origin: CopyOrigin, target: Target, wall_offset_ms: float) -> Copy:
    """Let the key of a copy decide where the counts of partitions differ."""
    copy = copy_of(failed, origin, target, wall_offset_ms)
    is_equal = target.partitions == target.source_partitions
    return copy if is_equal else copy._replace(partition=None)


def test_a_lane_has_one_owner_while_levels_change() -> None:
    for seed in range(SCHEDULES):
        simulate(seed, draw=changing)


def test_a_lane_has_one_owner_where_retry_topics_are_wider_than_their_sources() -> None:
    for seed in range(SCHEDULES // 2):
        simulate(seed, draw=wider)


def test_copies_with_another_owner_are_found(planted: Planted) -> None:
    bug = CallsCopiesAwayFromHome
    planted.expect(bug, SystemUnderTest(make_engine=bug), "of lane", SCHEDULES, changing)


def test_strays_that_are_called_where_they_lie_are_found(planted: Planted) -> None:
    bug = CallsStraysWhereTheyLie
    planted.expect(bug, SystemUnderTest(make_engine=bug), "of lane", SCHEDULES, wider)


def test_copies_that_do_not_keep_their_number_are_found(planted: Planted) -> None:
    planted.expect(
        by_key, SystemUnderTest(make_copy=by_key), "it goes to partition", SCHEDULES, wider
    )
