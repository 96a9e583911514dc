"""Whether the simulator notices what may go wrong with transactions: kills, aborts, rebalances."""

from __future__ import annotations

import pytest

from tests.engine import transaction_mutants as mutants
from tests.simulation.planted import Planted
from tests.simulation.schedules import exactly_once
from window_consumer.runtime.writing.exactly_once import TransactionOutlet
from window_consumer.simulator.simulator import simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SEEDS = 3000
HONEST_SEEDS = 60


def test_every_promise_is_kept_where_outputs_and_commits_are_transactions() -> None:
    for seed in range(HONEST_SEEDS):
        simulate(seed, draw=exactly_once)


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (mutants.OffsetsWithoutCopies, "covers"),
        (mutants.OutputInTheNextTransaction, "covers|without their outputs|but it is not"),
        (mutants.CommitsAfterRevoke, "but it is not|had finished and was committed"),
        (mutants.ForgetsLanes, "not finished"),
        (mutants.ShowsLost, "but it is not|had finished and was committed"),
        (mutants.ForgetsOtherPartitions, "not finished"),
        (mutants.CommitsWhatBeganElsewhere, "does not hold|covers"),
        (mutants.PlainMarks, "forgets that .* had finished"),
        (mutants.PlainLastCommits, "and was committed"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_in_transactions_is_found(
    planted: Planted, mutant: type[TransactionOutlet], expected: str
) -> None:
    subject = SystemUnderTest(make_transactions=mutant)
    planted.expect(mutant, subject, expected, SEEDS, exactly_once)
