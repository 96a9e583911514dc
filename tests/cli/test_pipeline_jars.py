"""``window-consumer pipeline jars``: what is there, what is not, and what is not what it says."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from tests.golden_texts import Golden
from window_consumer.spark import jars, java
from window_consumer.spark.jars import (
    Jar,
    JarsNotFetchedError,
    MissingJarsError,
    UnwritableDirectoryError,
)
from window_consumer.spark.java import NoJavaError


class Maven:
    """A program of that name; what it brings is chosen by the test."""

    def __init__(self, directory: Path):
        self.brings = directory / "brings"
        self.brings.mkdir()
        self.calls = directory / "calls"
        self.program = directory / "bin" / "mvn"
        self.program.parent.mkdir()
        self.program.write_text(
            "#!/bin/sh\n"
            f'echo called >> "{self.calls}"\n'
            'for each in "$@"; do\n'
            'case "$each" in -DoutputDirectory=*) to="${each#*=}";; esac\n'
            "done\n"
            f'test -e "{directory}/fails" && {{ echo "no route"; exit 1; }}\n'
            f'mkdir -p "$to" && cp "{self.brings}"/* "$to"\n'
        )
        self.program.chmod(0o755)

    @property
    def times(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


JARS = {"one": b"what is in one", "two": b"what is in two"}


LOCKED = tuple(
    Jar("org.example", name, "1", hashlib.sha256(content).hexdigest())
    for name, content in JARS.items()
)


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maven:
    maven = Maven(tmp_path)
    for name, content in JARS.items():
        (maven.brings / f"{name}-1.jar").write_bytes(content)
    monkeypatch.setenv("PATH", f"{maven.program.parent}{os.pathsep}{os.environ['PATH']}")
    return maven


def test_jars_are_brought_once(maven: Maven, tmp_path: Path) -> None:
    place = tmp_path / "jars"
    with pytest.raises(MissingJarsError, match=r"one-1.jar, two-1.jar"):
        jars.ready(place, LOCKED)
    assert [jar.artifact for jar in jars.fetch(place, LOCKED)] == ["one", "two"]
    assert [path.read_bytes() for path in jars.ready(place, LOCKED)] == list(JARS.values())
    assert jars.fetch(place, LOCKED) == []
    assert maven.times == 1


def test_a_jar_that_was_changed_is_not_used_and_brought_again(maven: Maven, tmp_path: Path) -> None:
    place = tmp_path / "jars"
    jars.fetch(place, LOCKED)
    (place / "two-1.jar").write_bytes(b"something else")
    with pytest.raises(MissingJarsError, match=r"two-1.jar"):
        jars.ready(place, LOCKED)
    assert [jar.artifact for jar in jars.fetch(place, LOCKED)] == ["two"]
    assert maven.times == 2


def test_other_bytes_than_the_lock_names_are_not_taken_over(maven: Maven, tmp_path: Path) -> None:
    (maven.brings / "two-1.jar").write_bytes(b"something else")
    with pytest.raises(JarsNotFetchedError, match=r"two-1.jar"):
        jars.fetch(tmp_path / "jars", LOCKED)
    assert list((tmp_path / "jars").glob("*.jar")) == []


def test_what_maven_says_is_passed_on(maven: Maven, tmp_path: Path) -> None:
    (tmp_path / "fails").touch()
    with pytest.raises(JarsNotFetchedError, match="no route"):
        jars.fetch(tmp_path / "jars", LOCKED)
    assert maven.times == 1


def test_without_maven_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with golden.raises(MissingJarsError):
        jars.fetch(tmp_path / "jars", LOCKED)


def test_a_place_that_cannot_be_written_is_reported_with_what_to_do(
    maven: Maven, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "jars"):
        with pytest.raises(UnwritableDirectoryError, match=str(place)):
            jars.fetch(place, LOCKED)
    assert maven.times == 0


def test_where_all_jars_are_nothing_is_written(maven: Maven, tmp_path: Path) -> None:
    for name, content in JARS.items():
        (tmp_path / f"{name}-1.jar").write_bytes(content)
    before = set(tmp_path.iterdir())
    assert jars.fetch(tmp_path, LOCKED) == []
    assert set(tmp_path.iterdir()) == before
    assert maven.times == 0


def test_those_who_fetch_at_once_download_once(maven: Maven, tmp_path: Path) -> None:
    threads = [
        threading.Thread(target=jars.fetch, args=(tmp_path / "jars", LOCKED)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maven.times == 1
    assert len(jars.ready(tmp_path / "jars", LOCKED)) == len(JARS)


# ---- Java


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        (None, "`java` not found"),
        ('openjdk version "11.0.20" 2023-07-18', r"is too old, it reports 'openjdk version"),
        ("not a version", "is too old"),
        ('openjdk version "21.0.1" 2023-10-17', None),
    ],
)
def test_java_is_looked_at_before_spark_is_started(
    version: str | None, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version is not None:
        program = tmp_path / "java"
        program.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
        program.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if problem is None:
        java.check()
    else:
        with pytest.raises(NoJavaError, match=problem):
            java.check()


@pytest.mark.parametrize("content", ["", "\x7fELF and nothing behind it"])
def test_a_java_that_cannot_be_started_is_reported(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(content)
    program.chmod(0o755 if content else 0o644)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJavaError, match=f"cannot start {program}.* Java 17 or later"):
        java.check()
