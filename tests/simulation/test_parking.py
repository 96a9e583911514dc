"""Keys that fail and keep their order, in thousands of schedules with kills."""

from __future__ import annotations

import pytest

from tests.simulation import parking_mutants as mutants
from tests.simulation.planted import Planted
from tests.simulation.schedules import (
    following,
    following_in_transactions,
    following_in_wider_topics,
    parked,
    parked_with_much_else,
    put_back,
    recreated,
    rotating,
    rotating_what_was_written,
)
from window_consumer.parking.rules import Parking
from window_consumer.parking.scans import LadderScans
from window_consumer.simulator.simulator import Draw, ViolationError, simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 20
TRANSACTIONS = 20
MUTANTS_SEEDS = 600


@pytest.mark.parametrize("draw", [parked, parked_with_much_else, recreated])
def test_a_key_keeps_its_order_and_nothing_is_lost(draw: Draw) -> None:
    broken = []
    for seed in range(SCHEDULES):
        try:
            simulate(seed, draw=draw)
        except ViolationError as violation:
            broken.append(str(violation))
    assert not broken, "\n".join(broken[:3])


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (mutants.StartsFollowersAtOnce, "before .* has ended"),
        (mutants.LosesTheEntryAtTheCopy, "before .* has ended"),
        (mutants.ParksBeforeTheAck, "has no copy"),
        (mutants.CallsSuccessors, "before .* has ended"),
        (mutants.ReleasesNobody, "not finished after"),
        (mutants.KeepsWhatHasFinished, "not finished after"),
        (mutants.CopiesAgain, "before .* has ended"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_planted_in_the_rule_is_found(
    planted: Planted, mutant: type[Parking], expected: str
) -> None:
    subject = SystemUnderTest(make_parking=mutant)
    planted.expect(mutant, subject, expected, MUTANTS_SEEDS, parked)


def test_a_bug_planted_in_rotation_is_found(planted: Planted) -> None:
    subject = SystemUnderTest(make_parking=mutants.CountsRotations)
    planted.expect(mutants.CountsRotations, subject, "not finished after", MUTANTS_SEEDS, rotating)


def test_full_park_windows_are_rotated_also_where_their_records_are_suspects() -> None:
    for seed in (*range(SCHEDULES), 164, 764):  # these two stood still, among crash suspects
        simulate(seed, draw=rotating_what_was_written)


def test_dead_letters_that_are_put_back_keep_the_order_of_their_keys() -> None:
    broken = []
    for seed in range(SCHEDULES):
        try:
            simulate(seed, draw=put_back)
        except ViolationError as violation:
            broken.append(str(violation))
    assert not broken, "\n".join(broken[:3])


@pytest.mark.parametrize("draw", [following, following_in_wider_topics])
def test_what_waits_behind_a_dead_head_follows_it_through_kills(draw: Draw) -> None:
    broken = []
    for seed in range(SCHEDULES):
        try:
            simulate(seed, draw=draw)
        except ViolationError as violation:
            broken.append(str(violation))
    assert not broken, "\n".join(broken[:3])


def test_what_was_parked_after_a_head_had_died_is_called_also_after_an_abort() -> None:
    for seed in (*range(TRANSACTIONS), 135):  # 135: a follower's dead letter counted as a head
        simulate(seed, draw=following_in_transactions)


@pytest.mark.parametrize(
    "subject",
    [
        SystemUnderTest(make_parking=mutants.CallsFollowers),
        SystemUnderTest(make_scans=mutants.ForgetsTheDead),
    ],
    ids=("CallsFollowers", "ForgetsTheDead"),
)
def test_a_bug_planted_in_what_follows_is_found(planted: Planted, subject: SystemUnderTest) -> None:
    mutant = subject.make_parking if subject.make_parking is not Parking else subject.make_scans
    planted.expect(mutant, subject, "although it follows", MUTANTS_SEEDS, following)


@pytest.mark.parametrize(
    "mutant",
    [mutants.ScansNothing, mutants.ScansOnlyLevels, mutants.ScansOnlyParked],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_planted_in_the_scan_is_found(planted: Planted, mutant: type[LadderScans]) -> None:
    subject = SystemUnderTest(make_scans=mutant)
    planted.expect(mutant, subject, "before .* has ended", MUTANTS_SEEDS, parked)


def test_a_record_that_is_taken_for_an_old_one_with_its_offset_is_found(planted: Planted) -> None:
    subject = SystemUnderTest(make_scans=mutants.ForgetsTopicIds)
    planted.expect(mutants.ForgetsTopicIds, subject, "has no copy", MUTANTS_SEEDS, recreated)
