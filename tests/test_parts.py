"""What ``make test`` prints on a machine without the parts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import PARTS
from window_consumer.spark import jars
from window_consumer.testing import real_kafka_jars

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("ci", "code"), [({}, 0), ({"CI": "1"}, 1)], ids=["laptop", "CI"])
def test_a_machine_without_the_parts_names_each_and_only_ci_fails(
    tmp_path: Path, ci: dict[str, str], code: int
) -> None:
    environment = {
        "PATH": str(tmp_path),
        real_kafka_jars.DIRECTORY_VARIABLE: str(tmp_path / "kafka"),
        jars.DIRECTORY_VARIABLE: str(tmp_path / "jars"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PIP_NO_INDEX": "1",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "tests.parts"],
        cwd=ROOT,
        env=environment | ci,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    named = [line.partition(": missing, ")[0] for line in ended.stderr.splitlines()]
    assert [name for name in named if name in {part for part, _, _ in PARTS}] == [
        part for part, _, _ in PARTS
    ]


@pytest.mark.parametrize(
    "arguments", [("--cache", "x"), ("--caches",), ("--caches", ".")], ids=" ".join
)
def test_ci_refuses_a_wrong_option_or_a_folder_of_others(arguments: tuple[str, ...]) -> None:
    ended = subprocess.run(
        ["bash", ".ci/run", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode in {1, 2}, ended.stdout
    assert ended.stderr
    assert not ended.stdout
