from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.golden_texts import Golden
from window_consumer.testing.real_kafka_jars import (
    KafkaUnavailableError,
    default_directory,
    fetch_jars,
    find_java,
)

Program = Callable[[str, str], None]

# Does what Maven does, and notes in "calls" that it was called.
MAVEN = """
echo called >> calls
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) out="${argument#*=}" ;; esac; done
mkdir "$out"
touch "$out/kafka_2.13-4.3.0.jar"
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """``program("mvn", script)`` makes that the only program of the name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for needed in ("sh", "mkdir", "touch"):
        (folder / needed).symlink_to(f"/bin/{needed}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.chdir(tmp_path)

    def make(name: str, script: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    return make


def calls() -> int:
    return len(Path("calls").read_text().splitlines())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_jars_are_fetched_once(program: Program, tmp_path: Path) -> None:
    program("mvn", MAVEN)
    first = fetch_jars(tmp_path / "cache")
    assert fetch_jars(tmp_path / "cache") == first
    assert names(first) == ["kafka_2.13-4.3.0.jar"]
    assert names(tmp_path / "cache") == ["kafka_2.13-4.3.0", "lock"]
    assert calls() == 1


def test_of_many_at_once_one_fetches_and_all_get_the_jars(program: Program, tmp_path: Path) -> None:
    program("mvn", MAVEN)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(fetch_jars, [tmp_path / "cache"] * 8))
    assert [names(folder) for folder in found] == [["kafka_2.13-4.3.0.jar"]]
    assert calls() == 1


FETCH = """
import sys
from pathlib import Path
from window_consumer.testing.real_kafka_jars import fetch_jars
fetch_jars(Path(sys.argv[1]))
"""


def test_an_interrupted_download_is_not_taken_for_a_finished_one(
    program: Program, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    program("mvn", MAVEN + "kill -KILL $PPID")
    killed = subprocess.run([sys.executable, "-c", FETCH, str(cache)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert [name for name in names(cache) if name.startswith("download-")] != []
    program("mvn", MAVEN)
    assert names(fetch_jars(cache)) == ["kafka_2.13-4.3.0.jar"]
    assert names(cache) == ["kafka_2.13-4.3.0", "lock"]
    assert calls() == 2


def test_a_failed_download_says_what_maven_said(program: Program, tmp_path: Path) -> None:
    program("mvn", "echo 'Unknown host repo.maven.apache.org'; exit 1")
    with pytest.raises(KafkaUnavailableError, match="Unknown host"):
        fetch_jars(tmp_path / "cache")
    assert names(tmp_path / "cache") == ["lock"]


def test_a_download_without_kafka_in_it_is_a_failed_one(
    program: Program, tmp_path: Path, golden: Golden
) -> None:
    program("mvn", "exit 0")
    with pytest.raises(KafkaUnavailableError) as failed:
        fetch_jars(tmp_path / "cache")
    golden(str(failed.value).partition(" Kafka ")[0])


@pytest.mark.usefixtures("program")
def test_without_maven_kafka_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(KafkaUnavailableError, match="`mvn`"):
        fetch_jars(tmp_path / "cache")


@pytest.mark.usefixtures("program")
def test_without_java_kafka_cannot_be_had() -> None:
    with pytest.raises(KafkaUnavailableError, match=r"`java` .*Java 17"):
        find_java()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "16"])
def test_a_java_that_is_too_old_does_not_do(program: Program, version: str) -> None:
    program("java", f"echo 'openjdk version \"{version}\"' >&2")
    with pytest.raises(KafkaUnavailableError, match=f"Java 17 or later.*{version}"):
        find_java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_java_that_is_new_enough_is_found(program: Program, tmp_path: Path, version: str) -> None:
    program("java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    assert find_java() == str(tmp_path / "bin" / "java")


def test_the_environment_says_where_jars_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDOW_CONSUMER_KAFKA_DIR", "/somewhere")
    assert default_directory() == Path("/somewhere")
    monkeypatch.setenv("WINDOW_CONSUMER_KAFKA_DIR", "")
    assert default_directory() == Path(__file__).parents[2] / ".kafka"


NEEDS_KAFKA = """
def test_that_needs_kafka(kafka):
    pass
"""


@pytest.mark.parametrize(("ci", "says"), [("", "1 skipped"), ("true", "1 error")])
def test_a_test_without_kafka_is_skipped_but_fails_in_ci(
    program: Program, tmp_path: Path, ci: str, says: str
) -> None:
    program("mvn", "exit 1")
    fixtures = (Path(__file__).parents[1] / "conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(fixtures)
    (tmp_path / "test_it.py").write_text(NEEDS_KAFKA)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "--rootdir=."],
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert says in done.stdout
    assert re.search("`java` .*Java 17", done.stdout)
