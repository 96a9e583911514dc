"""Batches on thousands of schedules, and whether breaking their rules is noticed."""

from __future__ import annotations

import pytest

from tests.simulation import batch_mutants as mutants
from tests.simulation.planted import Planted
from tests.simulation.schedules import failing_batches, with_batches
from window_consumer.engine.engine import Engine
from window_consumer.simulator.simulator import Draw, ViolationError, simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 60
MUTANTS_SEEDS = 1500


@pytest.mark.parametrize(("draw", "schedules"), [(with_batches, SCHEDULES), (failing_batches, 20)])
def test_every_promise_is_kept_where_handlers_get_lists(draw: Draw, schedules: int) -> None:
    broken = []
    for seed in range(schedules):
        try:
            simulate(seed, draw=draw)
        except ViolationError as violation:
            broken.append(str(violation))
    assert not broken, "\n".join(broken[:3])


@pytest.mark.parametrize(
    ("mutant", "draw", "expected"),
    [
        (mutants.OwnsOnlyTheFirstLane, with_batches, "of lane"),
        (mutants.LeavesLinesAsTheyStand, with_batches, "not in order"),
        (mutants.WaitsUntilItIsFull, with_batches, "not finished after"),
        (mutants.LosesWhatItHasGathered, with_batches, "not finished after|of lane"),
        (mutants.CallsFailedOnesApart, failing_batches, "of lane"),
        (mutants.FinishesTheRestOfALaneThatBlocks, failing_batches, "covers"),
        (mutants.CallsAllAgain, with_batches, "after its final outcome"),
        (mutants.FinishesAllOfABatch, with_batches, "covers"),
        (mutants.GivesUpTheFirstOfABatch, failing_batches, "not finished after"),
        (mutants.FreesTheLanesOfABatchThatHangs, failing_batches, "of lane"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_planted_in_batches_is_found(
    planted: Planted, mutant: type[Engine], draw: Draw, expected: str
) -> None:
    planted.expect(mutant, SystemUnderTest(make_engine=mutant), expected, MUTANTS_SEEDS, draw)
