from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import children
from benchmarks.workloads import WORKLOADS
from tests.golden_texts import Golden
from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka_settings import free_addresses


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=children.CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_list_names_every_workload() -> None:
    done = benchmarks("list")
    assert done.returncode == 0
    named = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert named == list(WORKLOADS)


def test_an_unknown_workload_is_wrong_usage_and_the_nearest_one_is_named(golden: Golden) -> None:
    done = benchmarks("run", "noop-keys")
    assert done.returncode == 2
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("Error: "))
    golden(error)
    assert "stuck-start" in done.stderr
    assert "Traceback" not in done.stderr


def test_fewer_than_three_runs_are_refused() -> None:
    done = benchmarks("run", "noop-key", "--runs", "2")
    assert done.returncode == 2
    assert "x>=3" in done.stderr


def test_a_report_that_could_not_be_written_is_refused_before_anything_runs(
    tmp_path: Path, golden: Golden
) -> None:
    done = benchmarks("run", "noop-key", "--json", str(tmp_path / "missing" / "report.json"))
    assert done.returncode == 2
    golden(done.stderr)


def test_a_kafka_that_does_not_answer_is_said_in_one_line(golden: Golden) -> None:
    (nobody,) = free_addresses(1)
    done = benchmarks("run", "noop-key", "--kafka", nobody)
    assert done.returncode == 1
    golden(done.stderr.partition(" within ")[0])
    assert "Traceback" not in done.stderr


def test_a_table_of_an_empty_directory_is_wrong_usage(tmp_path: Path, golden: Golden) -> None:
    done = benchmarks("table", str(tmp_path))
    assert done.returncode == 2
    golden(done.stderr)


def test_a_child_that_fails_is_reported_with_what_it_said(golden: Golden) -> None:
    with pytest.raises(RunError, match="KeyError") as failed:
        children.run("nonsense")
    golden(str(failed.value).partition("\n")[0])
