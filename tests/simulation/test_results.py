"""Whether the simulator notices what may go wrong with results."""

from __future__ import annotations

import pytest

from tests.simulation import result_mutants as mutants
from tests.simulation.planted import Planted
from tests.simulation.schedules import many_results
from window_consumer.engine.engine import Engine
from window_consumer.simulator.simulator import simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SEEDS = 3000
HONEST_SEEDS = 100


def test_every_promise_is_kept_where_most_calls_return_results() -> None:
    for seed in range(HONEST_SEEDS):
        simulate(seed, draw=many_results)


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (mutants.FinishesBeforeResultsAreAcked, "covers"),
        (mutants.WaitsForTheFirstAckOnly, "covers|is over|not finished|of lane|dies of a bug"),
        (mutants.SendsOnlyTheLostOnesAgain, "are in another order|covers|of lane"),
        (mutants.FreesTheLaneWhileResultsAreOut, "of lane"),
        (mutants.TakesARefusalForAnAck, "covers|of lane"),
        (mutants.TriesARefusalForEver, "which is over|not finished"),
        (mutants.TakesInAnyNumberOfResults, "bytes of results"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_in_what_becomes_of_results_is_found(
    planted: Planted, mutant: type[Engine], expected: str
) -> None:
    planted.expect(mutant, SystemUnderTest(make_engine=mutant), expected, SEEDS, many_results)
