"""Redrives beside a group, killed at any step; and whether broken ones are noticed."""

from __future__ import annotations

import pytest

from tests.simulation import redrive_mutants as mutants
from tests.simulation.planted import Planted
from tests.simulation.schedules import many_dead_letters
from window_consumer.simulator.simulator import ViolationError, simulate
from window_consumer.simulator.system_under_test import MakeRedrive, SystemUnderTest

SCHEDULES = 200
MUTANTS_SEEDS = 1000


def test_every_promise_is_kept_where_many_dead_letters_go_back() -> None:
    broken = []
    for seed in range(SCHEDULES):
        try:
            simulate(seed, draw=many_dead_letters)
        except ViolationError as violation:
            broken.append(str(violation))
    assert not broken, "\n".join(broken[:3])


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (mutants.commits_before_the_acks, "passes over .*, which was not put back"),
        (mutants.commits_before_it_remembers, "before it is remembered"),
        (mutants.remembers_before_the_acks, "as resolved before its copy is acked"),
        (mutants.ignores_failures, "before its copy is acked|was not put back"),
        (mutants.takes_what_is_refused_for_acked, "as resolved before its copy is acked"),
        (mutants.does_not_count, "wc-redrives is"),
        (mutants.appends_its_count, "headers of ours that were appended"),
        (mutants.never_guards, "which was put back . times"),
        (mutants.forgets_its_progress, "since its last commit|committed is"),
        (mutants.commits_only_at_the_end, "since its last commit"),
        (mutants.forgets_what_is_resolved, "although it is resolved"),
        (mutants.remembers_nothing, "before it is remembered"),
        (mutants.passes_over_the_last_of_a_batch, "which was not put back"),
        (mutants.goes_by_the_key, "instead of its lane's"),
        (mutants.drops_references, "which was not put back"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_in_redrives_is_found(planted: Planted, mutant: MakeRedrive, expected: str) -> None:
    planted.expect(
        mutant, SystemUnderTest(make_redrive=mutant), expected, MUTANTS_SEEDS, many_dead_letters
    )
