"""Slots whose processes die, on thousands of schedules, and whether breaking rules is noticed."""

from __future__ import annotations

import pytest

from tests.simulation import death_mutants as mutants
from tests.simulation.planted import Planted
from tests.simulation.schedules import dying_batches, dying_slices
from window_consumer.engine.engine import Engine
from window_consumer.simulator.simulator import Draw, ViolationError, simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 10
MUTANTS_SEEDS = 1500


@pytest.mark.parametrize("draw", [dying_slices, dying_batches])
def test_every_promise_is_kept_where_processes_of_slots_die(draw: Draw) -> None:
    broken = []
    for seed in range(SCHEDULES):
        try:
            simulate(seed, draw=draw)
        except ViolationError as violation:
            broken.append(str(violation))
    assert not broken, "\n".join(broken[:3])


@pytest.mark.parametrize(
    ("mutant", "draw", "expected"),
    [
        (mutants.ChargesAllOfABatch, dying_batches, "as attempt 2 after 0"),
        (mutants.ChargesNobody, dying_slices, "not finished after"),
        (mutants.ForgetsTheSecondHalf, dying_batches, "not finished after|of lane"),
        (mutants.StartsBothHalvesOfALane, dying_batches, "of lane"),
        (mutants.FreesTheLanesOfHalves, dying_batches, "of lane"),
        (mutants.ForgetsHalvesThatArePutBack, dying_batches, "not finished after|of lane"),
        (mutants.ForgetsWhatWasNotBegun, dying_slices, "not finished after|of lane"),
        (mutants.CountsTheRecordThatItDiedOn, dying_slices, "covers"),
        (mutants.ChargesWhatWasNotBegun, dying_slices, "as attempt 2 after 0|of lane"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_planted_in_what_follows_a_death_is_found(
    planted: Planted, mutant: type[Engine], draw: Draw, expected: str
) -> None:
    planted.expect(mutant, SystemUnderTest(make_engine=mutant), expected, MUTANTS_SEEDS, draw)
