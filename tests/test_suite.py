"""Failed tests run again, but only those that may."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.suite import RERUNS, ROOT, Suite
from tests.suite_plugin import TAKES_S
from window_consumer.testing.real_kafka_jars import DIRECTORY_VARIABLE, KAFKA_VERSION

FAILS_ONCE = """
from pathlib import Path

def test_{name}():
    ran = Path(__file__).with_suffix(".{name}")
    first = not ran.exists()
    ran.write_text(ran.read_text() + "x" if ran.exists() else "x")
    assert not first
"""


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """To load those of the tests would take a second of each run."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def written(directory: Path, source: str, name: str = "tests/kafka/test_it.py") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    return path


def run(directory: Path, *arguments: str) -> tuple[int, list[str]]:
    suite = Suite(directory)
    return suite.run([("-q", *arguments)]), suite.unstable


def test_a_test_that_fails_once_is_unstable_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, FAILS_ONCE.format(name="one"))
    assert run(tmp_path) == (0, ["tests/kafka/test_it.py::test_one"])
    assert len(path.with_suffix(".one").read_text(encoding="utf-8")) == 1 + RERUNS
    assert "unstable" in capsys.readouterr().out


def test_a_test_that_fails_again_fails_the_suite(tmp_path: Path) -> None:
    written(tmp_path, "def test_one():\n    assert False\n")
    assert run(tmp_path) == (1, [])


def test_three_that_fail_once_fail_the_suite(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    written(tmp_path, "".join(FAILS_ONCE.format(name=name) for name in names))
    assert run(tmp_path) == (1, [])


def test_unstable_tests_of_several_stages_add_up(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        written(tmp_path, FAILS_ONCE.format(name=name), f"tests/kafka/test_{name}.py")
    suite = Suite(tmp_path)
    stages = [("-q", f"tests/kafka/test_{name}.py") for name in ("one", "two", "three")]
    assert suite.run(stages) == 1
    assert len(suite.unstable) == 2


@pytest.mark.parametrize("folder", ["engine", "model", "simulation"])
def test_a_test_of_the_rules_is_never_unstable(tmp_path: Path, folder: str) -> None:
    written(tmp_path, FAILS_ONCE.format(name="one"), f"tests/{folder}/test_it.py")
    assert run(tmp_path) == (1, [])


def test_a_file_that_cannot_be_read_is_no_unstable_test(tmp_path: Path) -> None:
    written(tmp_path, "import nothing_of_this_name\n")
    code, unstable = run(tmp_path)
    assert code != 0
    assert unstable == []


def test_nothing_to_run_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    code, _ = run(tmp_path)
    assert code != 0


def test_no_stage_runs_after_one_that_failed(tmp_path: Path) -> None:
    written(tmp_path, "def test_one():\n    assert False\n")
    later = written(tmp_path, FAILS_ONCE.format(name="two"), "tests/kafka/test_later.py")
    suite = Suite(tmp_path)
    assert suite.run([("tests/kafka/test_it.py",), ("tests/kafka/test_later.py",)]) == 1
    assert not later.with_suffix(".two").exists()


RECORDS_ITS_PROCESS = """
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_it(number):
    with Path({directory!r}, "ran").open("a") as file:
        file.write(f"{{Path(__file__).name}} {{os.environ['PYTEST_XDIST_WORKER']}}\\n")
"""


def test_files_of_spark_share_two_processes_and_all_files_run(tmp_path: Path) -> None:
    for number in range(6):
        source = RECORDS_ITS_PROCESS.format(directory=str(tmp_path), tests=number + 1)
        written(tmp_path, source, f"tests/pipeline/test_spark_{number}.py")
        written(tmp_path, source, f"tests/kafka/test_other_{number}.py")
    assert run(tmp_path, "-p", "xdist", "-p", "tests.suite_plugin", "-n", "4") == (0, [])
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    for kind in ("spark", "other"):
        files = Counter(file for file, _ in ran if file.startswith(f"test_{kind}_"))
        assert files == {f"test_{kind}_{number}.py": number + 1 for number in range(6)}
    assert len({process for file, process in ran if file.startswith("test_spark_")}) <= 2
    assert len(set(map(tuple, ran))) == 12  # each file in one process


# Instead of Kafka: says that it has started, and notes its process.
JAVA = """#!/bin/sh
case "$*" in
    -version) echo 'openjdk version "17"' >&2 ;;
    *StorageTool*) ;;
    *) echo $$ >> {directory}/kafkas; echo Kafka Server started; exec sleep 600 ;;
esac
"""

ASKS_FOR_KAFKA = """
from pathlib import Path
from tests.shared_kafka import PLACE, attach

def test_it(request):
    kafka = attach(Path(request.config.workerinput[PLACE]))
    with Path({directory!r}, "told").open("a") as file:
        file.write(f"{{kafka.bootstrap}} {{kafka.passwords['alice']}}\\n")
"""


def test_all_processes_have_one_kafka_which_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = written(tmp_path, JAVA.format(directory=tmp_path), "bin/java")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "jars" / f"kafka_2.13-{KAFKA_VERSION}").mkdir(parents=True)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "jars"))
    for number in range(6):
        source = ASKS_FOR_KAFKA.format(directory=str(tmp_path))
        written(tmp_path, source, f"tests/cli/test_{number}.py")
    assert run(tmp_path, "-p", "xdist", "-p", "tests.suite_plugin", "-n", "3") == (0, [])
    told = (tmp_path / "told").read_text().splitlines()
    assert Counter(Counter(told).values()) == {6: 1}
    (process,) = (tmp_path / "kafkas").read_text().split()
    assert not Path("/proc", process).exists()


RECORDS_ITS_READER = """
import os
from pathlib import Path

with Path({directory!r}, "read").open("a") as file:
    file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")

def test_it():
"""


def test_one_process_has_read_all_files_before_others_begin(tmp_path: Path) -> None:
    """It keeps what pytest makes of them."""
    for number in range(20):
        source = RECORDS_ITS_READER.format(directory=str(tmp_path))
        source += "    assert 1 + 1 == 2\n" * 100  # it takes a moment to make something of them
        written(tmp_path, source, f"tests/cli/test_{number}.py")
    assert run(tmp_path, "-p", "xdist", "-p", "tests.suite_plugin", "-n", "3") == (0, [])
    readers = (tmp_path / "read").read_text().split()
    assert len(set(readers[:20])) == 1
    assert Counter(Counter(readers).values()) == {20: 3}


def test_files_run_in_the_order_of_how_long_they_take(tmp_path: Path) -> None:
    for number in (2, 5, 3):
        source = RECORDS_ITS_PROCESS.format(directory=str(tmp_path), tests=number)
        written(tmp_path, source, f"tests/kafka/test_{number}.py")
    assert run(tmp_path, "-p", "xdist", "-p", "tests.suite_plugin", "-n", "1") == (0, [])
    ran = [line.split()[0] for line in (tmp_path / "ran").read_text().splitlines()]
    assert list(dict.fromkeys(ran)) == ["test_5.py", "test_3.py", "test_2.py"]


@pytest.mark.parametrize(("name", "code"), [("pytest", 0), ("renamed", 4)])
def test_a_file_whose_tests_run_in_a_later_stage_says_so(
    tmp_path: Path, name: str, code: int
) -> None:
    """That stage reads no other file."""
    written(
        tmp_path,
        f"import pytest as {name}\npytestmark = {name}.mark.calm\n\ndef test_one():\n    pass\n",
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = calm\n", encoding="utf-8")
    assert run(tmp_path, "-p", "xdist", "-p", "tests.suite_plugin") == (code, [])


def test_files_that_take_long_are_there() -> None:
    assert [file for file in TAKES_S if not (ROOT / file).exists()] == []


def test_make_test_says_first_what_it_runs() -> None:
    listed = subprocess.run(
        ["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    says = [number for number, line in enumerate(listed) if "tests.suite --what" in line]
    runs = [number for number, line in enumerate(listed) if line.endswith("tests.suite")]
    assert says
    assert runs
    assert max(says) < min(runs)


def test_what_make_test_runs_is_said_without_running_it() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.suite", "--what"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for part in ("Kafka", "Spark", "PostgreSQL", "Chromium", "mypy", "ruff"):
        assert part in said
