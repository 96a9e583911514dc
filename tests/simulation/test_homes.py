"""Members whose levels differ, in schedules made of it: a lane and its copies have one owner."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Any

import pytest
from attrs import evolve

from window_consumer.core.engine import Engine
from window_consumer.core.rungs import Level
from window_consumer.testing import schedule
from window_consumer.testing.schedule import Action, Plan
from window_consumer.testing.simulator import ViolationError, simulate
from window_consumer.testing.subject import Subject

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


def changing(rng: Random) -> Plan:
    """Draw a schedule in which levels change all the time, and many copies wait in them."""
    plan = schedule.draw(rng)
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
        self.homes.sort_out = lambda now: None  # type: ignore[method-assign] # noqa: ARG005 - a planted bug


def test_a_lane_has_one_owner_while_levels_change() -> None:
    for seed in range(SCHEDULES):
        simulate(seed, draw=changing)


def test_copies_with_another_owner_are_found() -> None:
    homeless = Subject(make_engine=CallsCopiesAwayFromHome)
    for seed in range(SCHEDULES):
        try:
            simulate(seed, draw=changing, subject=homeless)
        except ViolationError as violation:
            if "of lane" in violation.violations[0]:
                return
    pytest.fail(f"no promise was broken in {SCHEDULES} schedules")
