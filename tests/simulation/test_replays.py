"""Replays beside a group, killed at any step; and whether broken ones are noticed."""

from __future__ import annotations

import pytest

from tests.simulation import replay_mutants as mutants
from tests.simulation.planted import Planted
from tests.simulation.schedules import replayed, replayed_and_parked
from window_consumer.parking.rules import Parking
from window_consumer.simulator.simulator import Draw, ViolationError, simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 8
MUTANTS_SEEDS = 600


@pytest.mark.parametrize("draw", [replayed, replayed_and_parked], ids=lambda each: each.__name__)
def test_replayed_records_are_called_once_more_and_resumed_runs_lose_none(draw: Draw) -> None:
    broken = []
    for seed in range(SCHEDULES):
        try:
            simulate(seed, draw=draw)
        except ViolationError as violation:
            broken.append(str(violation))
    assert not broken, "\n".join(broken[:3])


@pytest.mark.parametrize(
    ("subject", "mutant", "expected"),
    [
        (SystemUnderTest(remaining=each), each, expected)
        for each, expected in (
            (mutants.resumes_one_too_far, "passes over .*, which was not copied|is lost"),
            (mutants.resumes_from_the_start, "more than one batch for each"),
        )
    ]
    + [
        (SystemUnderTest(make_replay=make), make, expected)
        for make, expected in (
            (mutants.commits_what_is_sent, "passes over .*, which was not copied"),
            (mutants.concludes_at_once, "is lost: .* ends without a copy of it"),
            (mutants.never_concludes, "its run is not over"),
            (mutants.skips_the_last_of_a_read, "passes over .*, which was not copied"),
        )
    ]
    + [
        (SystemUnderTest(make_replay_copies=copies), copies, expected)
        for copies, expected in (
            (mutants.CopiesWithoutTheirRun, "header wc-replay is None"),
            (mutants.CopiesOfCalls, "header wc-(attempts|reason|redrives) came along"),
            (mutants.CopiesByKey, "instead of its lane's"),
        )
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_in_replays_is_found(
    planted: Planted, subject: SystemUnderTest, mutant: object, expected: str
) -> None:
    planted.expect(mutant, subject, expected, MUTANTS_SEEDS, replayed)


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (mutants.FinishesReplayed, "ends as parked but has no copy"),
        (mutants.CallsReplayedAtOnce, "is called in .* before .* has ended"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_copy_of_a_replay_that_keeps_no_order_is_found(
    planted: Planted, mutant: type[Parking], expected: str
) -> None:
    subject = SystemUnderTest(make_parking=mutant)
    planted.expect(mutant, subject, expected, MUTANTS_SEEDS, replayed_and_parked)
