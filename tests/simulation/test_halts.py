"""People who pause and resume partitions and workers at any time: nothing is lost for it."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Any

import pytest
from attrs import evolve

from tests.simulation.planted import Planted
from window_consumer.engine.decisions import Decisions
from window_consumer.engine.engine import Engine
from window_consumer.engine.guards.pauses import Pauses
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.simulator.schedule import Action, SchedulePlan
from window_consumer.simulator.schedule_builder import draw
from window_consumer.simulator.simulator import simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 30

ACTIONS: dict[Action, float] = {
    "turn": 45.0,
    "work": 30.0,
    "produce": 8.0,
    "wait": 6.0,
    "acks": 5.0,
    "news": 0.5,
    "start": 4.0,
    "halt": 6.0,
    "rebalance": 1.5,
    "evict": 0.5,
    "kill": 0.7,
    "weather": 1.0,
}


def pausing(rng: Random) -> SchedulePlan:
    """Draw a schedule in which somebody pauses and resumes all the time."""
    plan = draw(rng)
    return evolve(plan, actions=tuple(ACTIONS), weights=tuple(accumulate(ACTIONS.values())))


class Watched(Engine):
    """An Engine that starts nothing of what is paused, or says so."""

    def on_tick(self, now: float, wall_ms: float) -> Decisions:
        decisions = super().on_tick(now, wall_ms)
        for slice_ in decisions.dispatch:
            is_paused = HoldReason.MANUAL in slice_.partition.holds
            assert not is_paused, f"{slice_.partition.name} is paused and starts"
        return decisions


class ForgetsWhoWaited(Engine):
    """Whose next call was due in a pause is not called after it."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.failed_records.call_held = lambda partition: None  # type: ignore[method-assign] # noqa: ARG005 - a planted bug


class _ByNameOnly(Pauses):
    def assigned(self, partition: Partition) -> None:
        partition.set_hold(HoldReason.MANUAL, held=False)


class StartsWhatComesNew(Watched):
    """What is assigned to a worker that is paused is not paused."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.pauses = _ByNameOnly(
            self.partitions,
            self.dispatcher,
            self.copy_queue,
            self.failed_records,
            self.completion,
            self.outcomes,
        )

    def on_tick(self, now: float, wall_ms: float) -> Decisions:
        decisions = super().on_tick(now, wall_ms)
        started = decisions.dispatch if self.pauses.worker else ()
        assert not started, "the worker is paused and starts"
        return decisions


def test_pauses_lose_nothing_and_keep_the_order() -> None:
    subject = SystemUnderTest(make_engine=Watched)
    for seed in range(SCHEDULES):
        simulate(seed, draw=pausing, subject=subject)


@pytest.mark.parametrize("mutant", [ForgetsWhoWaited, StartsWhatComesNew])
def test_pauses_that_go_wrong_are_found(planted: Planted, mutant: type[Engine]) -> None:
    planted.expect(mutant, SystemUnderTest(make_engine=mutant), ".", SCHEDULES, pausing)
