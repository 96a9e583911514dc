"""Whether the simulator notices redrives that lose, repeat or forget dead letters."""

from __future__ import annotations

import re

import pytest

from tests.simulation import redrive_mutants as mutants
from window_consumer.testing.simulator import ViolationError, simulate
from window_consumer.testing.subject import MakeRedrive, Subject

SEEDS = 3000


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (mutants.commits_before_the_acks, "passes over .*, which was not put back"),
        (mutants.remembers_before_the_acks, "as resolved before its copy is acked"),
        (mutants.ignores_failures, "as resolved before its copy is acked"),
        (mutants.takes_what_is_refused_for_acked, "as resolved before its copy is acked"),
        (mutants.does_not_count, "wc-redrives is"),
        (mutants.appends_its_count, "headers of ours that were appended"),
        (mutants.never_guards, "which was put back . times"),
        (mutants.forgets_its_progress, "since its last commit|committed is"),
        (mutants.commits_only_at_the_end, "since its last commit"),
        (mutants.forgets_what_is_resolved, "although it is resolved"),
        (mutants.remembers_nothing, "before it is remembered"),
        (mutants.passes_over_the_last_of_a_batch, "which was not put back"),
        (mutants.drops_references, "which was not put back"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_in_redrives_is_found(mutant: MakeRedrive, expected: str) -> None:
    for seed in range(SEEDS):
        try:
            simulate(seed, subject=Subject(make_redrive=mutant))
        except ViolationError as violation:
            if re.search(expected, violation.violations[0]):
                return
    pytest.fail(f"{mutant.__name__} broke no promise in {SEEDS} schedules")
