from __future__ import annotations

import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from benchmarks import children
from benchmarks.__main__ import cli
from benchmarks.workloads import WORKLOADS
from tests.commands import Ended
from tests.golden_texts import Golden
from window_consumer.cli.output import guarded
from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka_settings import free_addresses

NAME = "python -m benchmarks"


def benchmarks(*arguments: str) -> Ended:
    """Run the command in this process: to import all of it takes a second of another."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = guarded(lambda: int(cli.main([*arguments], NAME, standalone_mode=False) or 0))
    return Ended(code, out.getvalue(), err.getvalue())


def test_list_names_every_workload() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "list"],
        cwd=children.CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert named == list(WORKLOADS)


def test_an_unknown_workload_is_wrong_usage_and_the_nearest_one_is_named(golden: Golden) -> None:
    done = benchmarks("run", "noop-keys")
    assert done.code == 2
    (error,) = (line for line in done.err.splitlines() if line.startswith("error: "))
    golden(error)
    assert "stuck-start" in done.err
    assert "Traceback" not in done.err


def test_fewer_than_three_runs_are_refused() -> None:
    done = benchmarks("run", "noop-key", "--runs", "2")
    assert done.code == 2
    assert "x>=3" in done.err


def test_a_report_that_could_not_be_written_is_refused_before_anything_runs(
    tmp_path: Path, golden: Golden
) -> None:
    done = benchmarks("run", "noop-key", "--json", str(tmp_path / "missing" / "report.json"))
    assert done.code == 2
    golden(done.err)


def test_a_kafka_that_does_not_answer_is_said_in_one_line(golden: Golden) -> None:
    (nobody,) = free_addresses(1)
    done = benchmarks("run", "noop-key", "--kafka", nobody)
    assert done.code == 1
    golden(done.err.partition(" within ")[0])
    assert "Traceback" not in done.err


def test_a_table_of_an_empty_directory_is_wrong_usage(tmp_path: Path, golden: Golden) -> None:
    done = benchmarks("table", str(tmp_path))
    assert done.code == 2
    golden(done.err)


def test_a_child_that_fails_is_reported_with_what_it_said(golden: Golden) -> None:
    with pytest.raises(RunError, match="KeyError") as failed:
        children.run("nonsense")
    golden(str(failed.value).partition("\n")[0])
