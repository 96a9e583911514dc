"""The archive of Java's classes: whose it is, that it is used, and what is said without it."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.logged import events_in, lines_of
from window_consumer.model.log_events import LogEvent
from window_consumer.spark import class_archive
from window_consumer.spark.class_archive import NoArchiveError
from window_consumer.spark.commands.jars import fetch_all
from window_consumer.spark.jars import Jar
from window_consumer.spark.session import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = "spark.driver.defaultJavaOptions"


@pytest.fixture
def brought(tmp_path: Path) -> list[Path]:
    """A directory with a jar of its own."""
    (tmp_path / "a.jar").touch()
    return [tmp_path / "a.jar"]


def warmup(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have this run for Spark; $3 is where the archive is to be."""
    program = directory / "warmup"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_java_takes_its_classes_from_it(connectors: list[Path], spark: SparkSession) -> None:
    archive = class_archive.made(connectors)
    if archive is None:
        pytest.skip("this Java makes no archives")
    jvm = spark._jvm
    assert jvm is not None
    maps = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert str(archive) in maps


def test_without_one_there_are_no_options(brought: list[Path]) -> None:
    assert class_archive.options(brought) == class_archive.options([]) == ""
    assert class_archive.made(brought) is None
    assert "SharedArchiveFile" not in settings("local[2]", brought, {})[OPTIONS]


def test_it_is_used_on_this_machine_alone(
    brought: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """... elsewhere Spark is started with other jars before ours."""
    warmup(brought[0].parent, monkeypatch, 'touch "$3"')
    path = class_archive.make(brought)
    assert f'"-XX:SharedArchiveFile={path}"' in settings("local[2]", brought, {})[OPTIONS]
    assert OPTIONS not in settings("spark://spark:7077", brought, {})
    assert settings("local[2]", brought, {OPTIONS: "-Xss4m"})[OPTIONS] == "-Xss4m"


def another_java(home: Path) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"99\"' >&2\n")
    program.chmod(0o755)
    return home


def test_it_is_of_one_java_one_spark_and_these_jars(
    brought: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    warmup(tmp_path, monkeypatch, 'touch "$3"')
    first = class_archive.make(brought)
    assert class_archive.options(brought)
    assert class_archive.options([*brought, tmp_path / "b.jar"]) == ""
    with monkeypatch.context() as patched:
        patched.setenv("JAVA_HOME", str(another_java(tmp_path / "java")))
        assert class_archive.made(brought) is None
        second = class_archive.make(brought)
    assert [second] == list(tmp_path.glob("classes-*.jsa")) != [first]
    first = class_archive.make(brought)
    assert [first] == list(tmp_path.glob("classes-*.jsa"))
    (tmp_path / "jars").mkdir()
    main_jar = tmp_path / "jars" / "spark-core_2.13-9.9.9.jar"
    main_jar.touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert class_archive.made(brought) is None
    class_archive.make(brought)
    assert class_archive.made(brought)
    os.utime(main_jar, (1, 1))  # as when the same Spark is installed again
    assert class_archive.made(brought) is None


def test_one_that_was_cut_off_is_not_used(
    brought: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """... Java would die of it."""
    warmup(brought[0].parent, monkeypatch, 'echo archive > "$3"')
    path = class_archive.make(brought)
    assert class_archive.made(brought) == path
    os.truncate(path, 3)
    assert class_archive.made(brought) is None
    assert class_archive.options(brought) == ""
    again = class_archive.make(brought)
    assert again.read_text() == "archive\n"


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_one_that_others_may_write_is_not_used(
    brought: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: int,
) -> None:
    """... because Java runs what stands in it."""
    warmup(brought[0].parent, monkeypatch, 'umask 0; echo archive > "$3"')
    path = class_archive.make(brought)
    assert class_archive.made(brought) == path
    path.chmod(mode)
    assert class_archive.options(brought) == ""
    assert events_in(caplog) == [LogEvent.CLASS_ARCHIVE_SKIPPED]
    assert f"chmod go-w '{path}'" in caplog.text
    assert class_archive.make(brought) == path
    assert class_archive.made(brought) == path


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_none_is_made_or_used_where_others_may_write(
    brought: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: int,
) -> None:
    directory = brought[0].parent
    warmup(directory, monkeypatch, 'echo archive > "$3"')
    class_archive.make(brought)
    directory.chmod(mode)
    assert class_archive.options(brought) == ""
    assert events_in(caplog) == [LogEvent.CLASS_ARCHIVE_SKIPPED]
    assert f"chmod go-w '{directory}'" in caplog.text
    with pytest.raises(NoArchiveError, match=f"chmod go-w '{directory}'"):
        class_archive.make(brought, anew=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away, which root alone may")
def test_one_of_another_user_is_not_used(
    brought: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = brought[0].parent
    warmup(directory, monkeypatch, 'echo archive > "$3"')
    for given in (class_archive.make(brought), directory):
        assert class_archive.made(brought)
        os.chown(given, 12345, -1)
        assert class_archive.made(brought) is None
        (line,) = lines_of(caplog, LogEvent.CLASS_ARCHIVE_SKIPPED)
        assert str(given) in line.getMessage()
        caplog.clear()
        os.chown(given, os.geteuid(), -1)


def test_a_link_to_one_is_not_used(brought: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    directory = brought[0].parent
    warmup(directory, monkeypatch, 'echo archive > "$3"')
    path = class_archive.make(brought)
    path.symlink_to(path.rename(directory / "elsewhere"))
    assert class_archive.made(brought) is None


def test_one_that_goes_while_it_is_looked_at_is_none(brought: list[Path]) -> None:
    """... because another process makes it anew."""
    (brought[0].parent / "classes-0-0.jsa").symlink_to("nowhere")
    assert class_archive.made(brought) is None


def test_it_is_made_once(brought: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = brought[0].parent / "calls"
    warmup(brought[0].parent, monkeypatch, f'touch "$3"; echo called >> "{calls}"')
    assert class_archive.make(brought) == class_archive.make(brought)
    assert len(calls.read_text().splitlines()) == 1
    class_archive.make(brought, anew=True)
    assert len(calls.read_text().splitlines()) == 2


@pytest.mark.parametrize("script", ["echo no room; exit 3", "echo no room", 'touch "$3"; exit 1'])
def test_what_was_there_stays_where_java_makes_none(
    script: str, brought: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    warmup(brought[0].parent, monkeypatch, 'touch "$3"')
    path = class_archive.make(brought)
    warmup(brought[0].parent, monkeypatch, script)
    with pytest.raises(NoArchiveError, match=r"exit code [013]\b"):
        class_archive.make(brought, anew=True)
    assert {each.name for each in path.parent.iterdir()} == {path.name, "a.jar", "lock", "warmup"}


def test_the_command_makes_it_and_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [Jar("org.example", "a", "1", hashlib.sha256(b"").hexdigest())]
    (tmp_path / wanted[0].name).touch()
    warmup(tmp_path, monkeypatch, "echo no room; exit 3")
    fetch_all(tmp_path, wanted)
    assert "no room" in capsys.readouterr().err
    assert list(tmp_path.glob("classes-*.jsa")) == []
    warmup(tmp_path, monkeypatch, 'echo archive > "$3"')
    fetch_all(tmp_path, wanted)
    (archive,) = tmp_path.glob("classes-*.jsa")
    assert f"{archive.name}: 0 MB" in capsys.readouterr().out
    warmup(tmp_path, monkeypatch, "exit 3")
    fetch_all(tmp_path, wanted)  # the archive is there
    assert capsys.readouterr().err == ""
    assert list(tmp_path.glob("classes-*.jsa")) == [archive]
