from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from benchmarks import report
from benchmarks.results import Measured, Run
from benchmarks.workloads import WORKLOADS
from tests.golden_texts import Golden
from window_consumer.model.errors import UsageError

PROMISED = {
    "workload",
    "records_per_s",
    "baselines",
    "ratios",
    "cpu_s",
    "max_rss_mb",
    "lost",
    "order_violations",
    "committed_equals_end",
}


def noop(rate: float = 900_000.0, **broken: Any) -> Measured:
    runs = [Run(rate, cpu_s=seconds, max_rss_mb=80.0, **broken) for seconds in (1.0, 3.0, 2.0)]
    loops = {name: [Run(per_s)] * 3 for name, per_s in (("tuned-loop", 1e6), ("default-loop", 3e5))}
    return Measured(WORKLOADS["noop-unordered"], runs, loops)  # type: ignore[arg-type] # names are baselines


def stuck(growth: float) -> Measured:
    run = Run(15_000.0, ratios={"memory": growth}, notes={"growth_mb": growth * 64})
    return Measured(WORKLOADS["stuck-start"], [run] * 3, {"no-hang": [Run(15_000.0)] * 3})


def test_the_json_holds_what_is_promised() -> None:
    found = report.as_json(noop(), {"cores": 2})
    assert found.keys() >= PROMISED
    assert found["workload"] == "noop-unordered"
    assert found["records_per_s"] == 900_000.0
    assert found["baselines"] == {"tuned-loop": 1e6, "default-loop": 3e5}
    assert found["ratios"] == {"tuned-loop": 0.9, "default-loop": 3.0}
    assert (found["cpu_s"], found["max_rss_mb"]) == (2.0, 80.0)
    assert (found["lost"], found["order_violations"]) == (0, 0)
    assert found["committed_equals_end"] is True
    assert len(found["runs"]) == len(found["baseline_runs"]["tuned-loop"]) == 3
    assert found["machine"] == {"cores": 2}


def test_the_json_is_json() -> None:
    found = report.as_json(stuck(0.5), {})
    assert json.loads(json.dumps(found)) == found


def test_the_json_has_the_figures_of_each_variant_inside() -> None:
    variants = {"frozen": {"lost": 1.0, "twice": 0.0, "invented": 0.0}}
    assert report.as_json(noop(lost=1, variants=variants), {})["variants"] == variants
    assert "variants" not in report.as_json(noop(), {})


def test_the_json_counts_what_was_lost_in_any_run() -> None:
    found = report.as_json(noop(lost=2, committed_equals_end=False), {})
    assert (found["lost"], found["committed_equals_end"]) == (6, False)


def test_the_json_says_which_floors_hold() -> None:
    found = report.as_json(noop(rate=700_000.0), {})
    assert found["floors"] == {
        "tuned-loop": {"at_least": 0.9, "holds": False},
        "default-loop": {"at_least": 2.0, "holds": True},
    }
    assert report.as_json(stuck(1.6), {})["floors"]["memory"] == {"at_most": 1.5, "holds": False}


def test_the_text_shows_each_floor_and_whether_it_holds() -> None:
    text = report.as_text(noop(rate=700_000.0))
    tuned, default = [line for line in text.splitlines() if "ratio" in line]
    assert "0.700" in tuned
    assert "at least 0.9: MISSED" in tuned
    assert "at least 2: holds" in default
    assert "at most 1.5: holds" in report.as_text(stuck(1.5))


def test_the_text_of_a_failed_workload_says_so(golden: Golden) -> None:
    (line,) = (each for each in report.as_text(noop(lost=1)).splitlines() if "FAILED" in each)
    golden(line)
    assert "FAILED" not in report.as_text(noop())


def test_the_table_has_the_workloads_in_their_order_and_a_row_for_each_ratio() -> None:
    reports = [report.as_json(stuck(0.5), {}), report.as_json(noop(rate=700_000.0), {})]
    rows = report.table(reports).splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == [
        "`noop-unordered`",
        "",
        "`stuck-start`",
        "",
    ]
    assert "| tuned-loop (1,000,000) | 0.700 (0.700 to 0.700) | ≥ 0.9, missed |" in rows[0]
    assert "| memory | 0.500 (0.500 to 0.500) | ≤ 1.5 |" in rows[3]


def test_reports_are_read_back_from_their_directory(tmp_path: Path) -> None:
    written = report.as_json(noop(), {"cores": 2})
    (tmp_path / "noop-unordered.json").write_text(json.dumps(written))
    assert report.read_reports(tmp_path) == [written]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "is no JSON"),
        ("a.json", "[]", "is no report of a workload"),
        ("a.json", '{"workload": "nonsense"}', "is no report of a workload"),
        ("a.txt", "", "has no reports"),
    ],
)
def test_a_directory_without_reports_is_refused_in_words(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=words):
        report.read_reports(tmp_path)


def test_a_run_without_notes_has_none_in_its_text() -> None:
    quiet = evolve(stuck(0.5), runs=[Run(1.0, ratios={"memory": 0.1})] * 3)
    assert "growth_mb" in report.as_text(stuck(0.5))
    assert "growth_mb" not in report.as_text(quiet)
