"""Whether counts of an audit add up to what became of the records, and whether that is noticed."""

from __future__ import annotations

import pytest

from tests.simulation import audit_mutants as mutants
from window_consumer.audit.consumer import ConsumerAudit
from window_consumer.simulator.simulator import (
    ViolationError,
    simulate,
)
from window_consumer.simulator.system_under_test import Subject

SEEDS = 500
"""From the first one that is tried, which shows the bug where it is rare."""


@pytest.mark.parametrize(
    ("mutant", "first"),
    [
        (mutants.WritesWithTheNextCommit, 0),
        (mutants.NothingRunsAgain, 0),
        (mutants.AllEpochsAreOne, 88),
        (mutants.CountsInOneStretch, 2218),
        (mutants.CountsOnlyWhatSlides, 0),
        (mutants.ForgetsWhoLeft, 0),
        (mutants.LeavesGatheredRecordsForLater, 0),
        (mutants.KeepsWhatWasGivenUp, 364),
        (mutants.CountsOneTooManyAsGone, 141),
    ],
)
def test_a_bug_in_an_audit_is_found(mutant: type[ConsumerAudit], first: int) -> None:
    for seed in range(first, first + SEEDS):
        try:
            simulate(seed, subject=Subject(make_audit=mutant))
        except ViolationError as violation:
            if "audit: " in violation.violations[0]:
                return
    pytest.fail(f"{mutant.__name__} was not noticed in {SEEDS} schedules")
