from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import evolve

from benchmarks import gate
from benchmarks.results import Measured, Run
from benchmarks.workloads import PARTITIONS, WORKLOADS, Workload
from tests.benchmarks.test_command import benchmarks
from tests.golden_texts import Golden
from window_consumer.model.errors import RunError

CI = Path(__file__).parents[2] / ".ci" / "run"


def measuring(*ratios: float, **wrong: int) -> Callable[[Workload], Measured]:
    """Measure workloads with a baseline, each time with the next ratio."""
    left: Iterator[float] = iter(ratios)

    def measure(workload: Workload) -> Measured:
        (baseline,) = workload.baselines
        runs = [evolve(Run(1000.0 * next(left)), **wrong)]  # type: ignore[arg-type] # counts
        return Measured(workload, runs, {baseline: [Run(1000.0)]})

    return measure


NOOP = evolve(
    WORKLOADS["noop-unordered"],
    baselines=("tuned-loop",),
    floors=WORKLOADS["noop-unordered"].floors[:1],
)


def test_everything_that_promises_a_figure_is_in_the_long_form() -> None:
    assert gate.long_form() == [each for each in WORKLOADS.values() if each.floors]
    assert [each.name for each in gate.long_form(["skew", "noop-key"])] == ["noop-key", "skew"]


def test_a_figure_that_holds_and_one_that_falls_short_are_reported_in_a_table(
    golden: Golden,
) -> None:
    (good,) = gate.judge([NOOP], measuring(0.95))
    (bad,) = gate.judge([NOOP], measuring(0.85))
    assert good.problem == ""
    golden(bad.problem)
    lines = gate.table([good, bad]).splitlines()
    assert re.fullmatch(r"noop-unordered +tuned-loop +0.95 +at least 0.9 +holds", lines[1])
    golden(lines[-1])
    assert gate.table([good]).splitlines()[-1] == "all 1 figures hold"


def test_a_lost_record_counts_more_than_any_figure(golden: Golden) -> None:
    (verdict,) = gate.judge([NOOP], measuring(0.95, 0.95, lost=3), chances=2)
    golden(verdict.problem)


def test_a_run_that_fails_is_reported_and_the_others_go_on(golden: Golden) -> None:
    def measure(workload: Workload) -> Measured:
        if workload.name == "noop-key":
            raise RunError("the worker failed")
        return measuring(0.95)(workload)

    failing = evolve(NOOP, name="noop-key")
    bad, good = gate.judge([failing, NOOP], measure)
    assert good.problem == ""
    golden(bad.problem)
    assert "noop-key" in gate.table([bad, good])


@pytest.mark.parametrize(
    ("ratios", "said"),
    [((0.95,), ""), ((0.5, 0.95), ""), ((0.5, 0.51), "MISSED: 0.51 instead of at least 0.54")],
)
def test_the_short_form_believes_only_what_falls_short_twice(
    ratios: tuple[float, ...], said: str
) -> None:
    (short,) = (each for each in gate.short_form() if each.name == "noop-unordered")
    (verdict,) = gate.judge([short], measuring(*ratios), gate.CHANCES)
    assert verdict.problem == said


def test_the_short_form_has_one_ratio_of_each_with_a_tolerance() -> None:
    for short, workload in zip(gate.SHORT, gate.short_form(), strict=True):
        (floor,) = workload.floors
        promised = {each.ratio: each for each in WORKLOADS[short.workload].floors}[short.ratio]
        assert floor.limit == pytest.approx(promised.limit * short.share, abs=0.001)
        assert len(workload.baselines) <= 1
        assert workload.topic.records % PARTITIONS == 0
        assert workload.runs == 3


def test_the_short_form_is_a_part_of_ci() -> None:
    assert "benchmarks gate --short" in CI.read_text("utf-8")


def test_an_unknown_name_is_wrong_usage(golden: Golden) -> None:
    done = benchmarks("gate", "noop-keys")
    assert done.code == 2
    golden(done.err)


def test_the_short_form_takes_no_names(golden: Golden) -> None:
    done = benchmarks("gate", "--short", "noop-key")
    assert done.code == 2
    golden(done.err)
