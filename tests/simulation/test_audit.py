"""Whether counts of an audit add up to what became of the records, and whether that is noticed."""

from __future__ import annotations

import pytest

from tests.simulation import audit_mutants as mutants
from tests.simulation.planted import Planted
from window_consumer.audit.consumer import ConsumerAudit
from window_consumer.simulator.system_under_test import SystemUnderTest

SEEDS = 3000


@pytest.mark.parametrize(
    "mutant",
    [
        mutants.WritesWithTheNextCommit,
        mutants.NothingRunsAgain,
        mutants.AllEpochsAreOne,
        mutants.CountsInOneStretch,
        mutants.CountsOnlyWhatSlides,
        mutants.ForgetsWhoLeft,
        mutants.LeavesGatheredRecordsForLater,
        mutants.KeepsWhatWasGivenUp,
        mutants.CountsOneTooManyAsGone,
    ],
)
def test_a_bug_in_an_audit_is_found(planted: Planted, mutant: type[ConsumerAudit]) -> None:
    planted.expect(mutant, SystemUnderTest(make_audit=mutant), "audit: ", SEEDS)
