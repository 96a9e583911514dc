"""The promises of the design, on many schedules; and whether breaking them is noticed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden_texts import Golden
from tests.simulation import (
    mutants,
    test_at_most_once,
    test_batches,
    test_deaths,
    test_failed_records,
    test_halts,
    test_homes,
    test_parking,
    test_reassignment,
    test_redrives,
    test_results,
    test_stalls,
    test_transactions,
    test_turns,
)
from tests.simulation.planted import Planted
from tests.simulation.schedules import outages, poisoned
from window_consumer.engine.engine import Engine
from window_consumer.simulator.simulator import ViolationError, main, simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

ROOT = Path(__file__).parents[2]
SCHEDULES = 1150
PARTS = 8
MUTANTS_SEEDS = 3000


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_is_kept_in_every_schedule(part: int) -> None:
    broken = []
    first = test_failed_records.SCHEDULES  # which runs those before
    for seed in range(first + part, first + SCHEDULES, PARTS):
        try:
            simulate(seed)
        except ViolationError as violation:
            broken.append(str(violation))
    assert not broken, "\n".join(broken[:3])


def test_the_schedules_of_all_files_together_are_as_many_as_is_promised() -> None:
    others = (
        test_batches,
        test_deaths,
        test_failed_records,
        test_halts,
        test_homes,
        test_parking,
        test_reassignment,
        test_redrives,
        test_stalls,
        test_turns,
    )
    drawn = SCHEDULES + sum(each.SCHEDULES for each in others)
    honest = (test_at_most_once, test_results, test_transactions)
    assert drawn + sum(each.HONEST_SEEDS for each in honest) >= 2000


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (mutants.CommitsPastAnOpenCell, "covers|belong together"),
        (mutants.ForgetsTheEpoch, "late result|covers|after its final outcome"),
        (mutants.StartsTwoOfOneLane, "of lane"),
        (mutants.CountsOffsetsOverHoles, "covers|goes back|not finished|forgets"),
        (mutants.CommitsRangesOfAnotherBase, "belong together"),
        (mutants.DealsTheRunningRecordAgain, "while its earlier call runs|after its final outcome"),
        (mutants.DeadLettersBeforeTheAck, "covers"),
        (mutants.PutsRecordsBackAtTheEnd, "of lane"),
        (mutants.FreesTheLaneOfAFailedRecord, "of lane"),
        (mutants.ForgetsWhatWasFinishedBefore, "runs again"),
        (mutants.TakesInWhateverComes, "the limit is"),
        (mutants.CountsTheResultOfAnAbandonedCall, "late result|covers|dies of a bug"),
        (mutants.FreesTheLaneOfAnAbandonedCall, "of lane"),
        (mutants.FreesTheLaneOfAnOutlivedCall, "of lane"),
        (mutants.FreesTheLaneOfACallThatIsEnding, "of lane|while its earlier call runs"),
        (mutants.AbandonsAnyNumberOfCalls, "has abandoned"),
        (mutants.RunsBeforeItIsDue, "before it is due"),
        (mutants.WaitsHalfAsLong, "before its backoff is over"),
        (mutants.ForgetsARemovedLevel, "covers|not finished after|lost"),
        (mutants.LosesTheWaySoFar, "attempts instead of"),
        (mutants.KeepsLanesOfCopiesApart, "of lane"),
        (mutants.StartsBeforeTheNameIsAcked, "started alone before a commit names it"),
        (mutants.StartsWhileItRests, "started while its commit says that all rests"),
        (mutants.ChargesEverySuspect, "leaves as crashed"),
        (mutants.ForgetsWhoWasNamed, "not finished after"),
        (mutants.FillsUpWhileRecordsWaitForSlots, "too fast"),
        (mutants.ChargesNoRetries, "too fast"),
        (mutants.HandsOutBeyondTheLimit, "the limit was"),
        (mutants.LeavesPartitionsPaused, "not finished after"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_bug_is_found(planted: Planted, mutant: type[Engine], expected: str) -> None:
    planted.expect(mutant, SystemUnderTest(make_engine=mutant), expected, MUTANTS_SEEDS)


def test_a_breaker_that_never_holds_is_found(planted: Planted) -> None:
    subject = SystemUnderTest(make_engine=mutants.NeverHolds)
    expected = "while no call returned"
    planted.expect(mutants.NeverHolds, subject, expected, MUTANTS_SEEDS, outages)


def test_every_promise_is_kept_in_outages() -> None:
    for seed in range(20):
        simulate(seed, draw=outages)


@pytest.mark.parametrize("part", range(4))
def test_bad_records_hold_up_nobody_and_leave_in_time(part: int) -> None:
    for seed in range(part, 100, 4):
        simulate(seed, draw=poisoned)


def test_a_breaker_that_counts_calls_instead_of_records_is_found(planted: Planted) -> None:
    """It leaves no slots idle: new records start while it finds out why many fail."""
    subject = SystemUnderTest(make_engine=mutants.TakesRetriesForNews)
    expected = "always fails but does not leave"
    planted.expect(mutants.TakesRetriesForNews, subject, expected, 100, poisoned)


def test_a_worker_that_does_not_read_what_a_removed_level_holds_is_found(planted: Planted) -> None:
    """The rule by which workers choose what they read is a part of what is simulated."""

    bug = mutants.read_no_removed_level
    expected = r"not finished after .*shop\.\S+\.retry\."
    planted.expect(bug, SystemUnderTest(reads_on=bug), expected, MUTANTS_SEEDS)


def test_a_failing_schedule_says_its_seed_and_what_led_to_it() -> None:
    text = ""
    seed = -1
    while not text:
        seed += 1
        try:
            simulate(seed, subject=SystemUnderTest(make_engine=mutants.CommitsPastAnOpenCell))
        except ViolationError as violation:
            text = str(violation)
    assert re.match(rf"seed {seed}, step \d+: ", text)
    assert "commits orders" in text


def test_a_seed_replays_the_same_schedule(
    capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["--seed", "17"]) == 0
    first = capsys.readouterr().out
    assert main(["--seed", "17"]) == 0
    assert capsys.readouterr().out == first
    golden(first.splitlines()[-1])


REPLAYED = """
from tests.simulation.schedules import outages
from window_consumer.simulator.simulator import FRAMEWORK, ScheduleRun
from window_consumer.testing.events import Produced

run = ScheduleRun(9, FRAMEWORK, tell=False, draw=outages)
run.go(None)
for event in run.history.events:
    if isinstance(event, Produced):
        print(event.topic, event.partition, event.offset)
"""


def test_a_seed_replays_the_same_schedule_in_every_process() -> None:
    """Whatever the hashes of texts are there; it has redrives, which commit several partitions."""
    command = [sys.executable, "-c", REPLAYED]
    first, second = (
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    )
    assert first == second
    assert first


def test_a_range_of_seeds_is_summed_up(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert main(["--seeds", "0..5"]) == 0
    golden(capsys.readouterr().out)
