"""Lost partitions that come back: what had finished does not run again where nobody committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import kept_mutants as mutants
from tests.simulation.schedules import lost_partitions
from window_consumer.engine.kept_outcomes import KeptOutcomes
from window_consumer.simulator.simulator import (
    ViolationError,
    simulate,
)
from window_consumer.simulator.system_under_test import Subject

SCHEDULES = 120
MUTANTS_SEEDS = 300


def test_every_promise_is_kept_where_partitions_are_lost() -> None:
    for seed in range(SCHEDULES):
        simulate(seed, draw=lost_partitions)


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (mutants.KeepsWhateverIsCommitted, "has no final outcome"),
        (mutants.KeepsWhatHadNotFinished, "has no final outcome"),
        (mutants.ForgetsAtOnce, "nobody else has committed, and it runs again"),
        (mutants.KeepsAmongOrderedRecords, "has no final outcome"),
    ],
)
def test_a_bug_in_what_is_kept_is_found(mutant: type[KeptOutcomes], expected: str) -> None:
    assert found(Subject(make_kept=lambda ordered: mutant(ordered=ordered)), expected)


def test_an_audit_that_forgets_what_is_kept_is_found() -> None:
    assert found(Subject(make_audit=mutants.CountsOnlyFromTheReturnOn), "audit: ")


def found(subject: Subject, expected: str) -> bool:
    return any(expected in said for said in map(_violation(subject), range(MUTANTS_SEEDS)))


def _violation(subject: Subject) -> Callable[[int], str]:
    def of(seed: int) -> str:
        try:
            simulate(seed, draw=lost_partitions, subject=subject)
        except ViolationError as violation:
            return violation.violations[0]
        return ""

    return of
