"""Runs with telemetry are compared with the one without, whatever their order."""

from __future__ import annotations

from benchmarks.results import Run
from benchmarks.telemetry import VARIANTS, WITHOUT, side_by_side
from benchmarks.workloads import WORKLOADS


def test_each_kind_is_compared_with_the_run_without() -> None:
    rates = {WITHOUT: 1000.0, "metrics": 950.0, "spans": 800.0}
    order: list[str] = []

    def run(name: str) -> Run:
        order.append(name)
        return Run(rates[name], cpu_s=2.0, lost=name == "spans")

    for number in range(3):
        found = side_by_side(run, ["metrics", "spans"], number, 1_000_000)
        assert (found.records_per_s, found.lost) == (1000.0, 1)
        assert found.ratios == {"metrics": 0.95, "spans": 0.8}
        assert found.notes["without_cpu_us"] == 2.0
    assert order[0::3] == [WITHOUT, "metrics", "spans"]


def test_a_workload_names_only_kinds_that_there_are() -> None:
    for workload in WORKLOADS.values():
        assert set(workload.variants) <= set(VARIANTS)
