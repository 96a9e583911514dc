from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from benchmarks.results import Measured, Run, exit_code
from benchmarks.workloads import WORKLOADS, Floor, Workload

GOOD = Run(records_per_s=900.0)


def workload(*floors: Floor) -> Workload:
    return evolve(WORKLOADS["noop-unordered"], floors=floors)


def measured(*runs: Run, tuned: tuple[float, ...] = (1000.0,), floor: float = 0.8) -> Measured:
    return Measured(
        workload(Floor("tuned-loop", floor)),
        runs,
        {"tuned-loop": [Run(records_per_s=rate) for rate in tuned]},
    )


def test_a_ratio_is_that_of_the_medians() -> None:
    rates = [Run(100.0), Run(900.0), Run(500.0)]
    found = measured(*rates, tuned=(1000.0, 10.0, 2000.0))
    assert found.records_per_s.median == 500.0
    assert found.ratios == {"tuned-loop": 0.5}


def test_the_spread_of_a_ratio_is_that_of_neighbouring_runs() -> None:
    found = measured(Run(100.0), Run(900.0), tuned=(1000.0, 1000.0))
    assert found.ratio_spreads["tuned-loop"].as_json() == {"min": 0.1, "max": 0.9}
    assert found.records_per_s.as_json() == {"min": 100.0, "max": 900.0}


def test_a_ratio_that_the_runs_bring_along_is_the_median_of_theirs() -> None:
    runs = [Run(1.0, ratios={"busy": share}) for share in (0.9, 0.5, 0.98)]
    found = Measured(workload(), runs)
    assert found.ratios == {"busy": 0.9}
    assert found.ratio_spreads["busy"].as_json() == {"min": 0.5, "max": 0.98}


def test_the_comparison_without_a_hang_is_called_others() -> None:
    found = Measured(workload(), [Run(95.0)], {"no-hang": [Run(100.0)]})
    assert found.ratios == {"others": 0.95}


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"lost": 1}, "1 records were lost"),
        ({"duplicates": 1234}, "1,234 records were handled twice"),
        ({"order_violations": 2}, "2 records were handled out of order"),
        ({"committed_equals_end": False}, "do not reach the end"),
    ],
)
def test_one_broken_run_among_good_ones_fails_the_workload(
    broken: dict[str, Any], words: str
) -> None:
    bad = evolve(GOOD, **broken)
    found = measured(GOOD, bad, GOOD, tuned=(1000.0,) * 3)
    assert words in " ".join(found.failures())
    assert exit_code([measured(GOOD), found], strict=False) == 1


def test_a_guarantee_that_one_run_of_three_breaks_is_broken() -> None:
    floors = Floor("twice", 0, at_most=True, is_guarantee=True), Floor("p99_ms", 50, at_most=True)
    runs = [Run(1.0, notes={"twice": twice, "p99_ms": twice}) for twice in (0.0, 100.0, 0.0)]
    found = Measured(workload(*floors), runs)
    assert exit_code([found], strict=False) == 1
    assert found.notes == {"twice": 100.0, "p99_ms": 0.0}


def test_what_goes_wrong_in_the_run_that_is_only_checked_fails_the_workload() -> None:
    found = evolve(measured(GOOD), checks=[evolve(GOOD, lost=3)])
    assert found.lost == 3
    assert exit_code([found], strict=False) == 1


def test_good_runs_end_with_exit_code_0() -> None:
    assert list(measured(GOOD).failures()) == []
    assert exit_code([measured(GOOD)], strict=True) == 0


def test_a_missed_floor_is_a_failure_only_when_asked_for() -> None:
    slow = measured(GOOD, floor=0.95)
    assert list(slow.missed()) == [(Floor("tuned-loop", 0.95), 0.9)]
    assert exit_code([slow], strict=False) == 0
    assert exit_code([measured(GOOD), slow], strict=True) == 1


def test_a_ratio_that_meets_its_floor_exactly_holds() -> None:
    assert Floor("tuned-loop", 0.9).holds(0.9)
    assert not Floor("tuned-loop", 0.9).holds(0.8999)


def test_the_growth_of_memory_has_to_stay_below_its_limit() -> None:
    assert Floor("memory", 1.5, at_most=True).holds(1.5)
    assert not Floor("memory", 1.5, at_most=True).holds(1.51)


def test_records_that_kills_repeat_are_no_failure_up_to_the_bound() -> None:
    killed = evolve(WORKLOADS["redrive"], may_repeat=10)
    for repeated, problems in ((10, 0), (11, 1)):
        found = Measured(killed, [GOOD], checks=[Run(1.0, duplicates=repeated)])
        assert len(list(found.failures())) == problems
    assert list(Measured(killed, [evolve(GOOD, duplicates=1)]).failures())


def test_a_floor_may_be_about_the_rate_itself() -> None:
    found = Measured(workload(Floor("records_per_s", 1_000.0)), [GOOD])
    assert [value for _, value in found.missed()] == [900.0]
