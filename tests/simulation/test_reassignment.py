"""Lost partitions that come back: what had finished does not run again where nobody committed."""

from __future__ import annotations

import pytest

from tests.simulation import kept_mutants as mutants
from tests.simulation.planted import Planted
from tests.simulation.schedules import lost_partitions
from window_consumer.engine.commits.lost_partitions import KeptOutcomes
from window_consumer.simulator.simulator import simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 120
MUTANTS_SEEDS = 300


def test_every_promise_is_kept_where_partitions_are_lost() -> None:
    for seed in range(SCHEDULES):
        simulate(seed, draw=lost_partitions)


def test_a_call_that_begins_after_its_partition_is_lost_has_waited_as_long_as_it_had_to() -> None:
    """How long that is only the Engine knew: until it gave the partition up."""
    simulate(153, draw=lost_partitions)


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (mutants.KeepsWhateverIsCommitted, "has no final outcome"),
        (mutants.KeepsWhatHadNotFinished, "has no final outcome"),
        (mutants.ForgetsAtOnce, "nobody else has committed, and it runs again"),
        (mutants.KeepsAmongOrderedRecords, "has no final outcome"),
    ],
)
def test_a_bug_in_what_is_kept_is_found(
    planted: Planted, mutant: type[KeptOutcomes], expected: str
) -> None:
    subject = SystemUnderTest(make_kept=lambda ordered: mutant(ordered=ordered))
    planted.expect(mutant, subject, expected, MUTANTS_SEEDS, lost_partitions)


def test_an_audit_that_forgets_what_is_kept_is_found(planted: Planted) -> None:
    mutant = mutants.CountsOnlyFromTheReturnOn
    planted.expect(
        mutant, SystemUnderTest(make_audit=mutant), "audit: ", MUTANTS_SEEDS, lost_partitions
    )
