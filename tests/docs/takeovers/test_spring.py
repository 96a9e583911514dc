"""The page on migration: the page's Spring listener, a worker and the listener again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.commands import Commands
from tests.docs.pages import blocks
from tests.docs.takeovers.group import PAGE, Foreign, Group
from tests.parts import spring, spring_jars
from window_consumer.model.errors import WindowConsumerError

APPLICATION = Path(__file__).with_name("SpringShop.java")
LIGHT = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

ATTEMPTS = 4
"""As often as the page's listener tries."""


@pytest.fixture(scope="module")
def class_path() -> str:
    try:
        spring()
    except WindowConsumerError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI has to have Spring Kafka: {error}")
        pytest.skip(f"no Spring Kafka: {error}")
    return ":".join(map(str, spring_jars()))


@pytest.fixture
def listener(class_path: str, group: Group, tmp_path: Path) -> Foreign:
    (block,) = blocks(PAGE, "java")
    return compiled(group.renamed(block.text), class_path, tmp_path)


@pytest.fixture
def hasty_listener(class_path: str, group: Group, tmp_path: Path) -> Foreign:
    """The same, with dead letters after a third of a second instead of half a minute."""
    (block,) = blocks(PAGE, "java")
    hasty = block.text.replace("delay = 1000", "delay = 10")
    return compiled(group.renamed(hasty), class_path, tmp_path)


def compiled(listener: str, class_path: str, directory: Path) -> Foreign:
    source = directory / APPLICATION.name
    source.write_text(APPLICATION.read_text().replace("/*LISTENER*/", listener))
    javac, java = (shutil.which(name) or name for name in ("javac", "java"))
    compiling = [javac, "-J-XX:TieredStopAtLevel=1", "-proc:none", "-cp", class_path, str(source)]
    ended = subprocess.run(compiling, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    class_path = f"{directory}:{class_path}"
    return Foreign([java, *LIGHT, "-cp", class_path, APPLICATION.stem], directory, {})


def test_a_worker_takes_over_from_spring_and_gives_back(listener: Foreign, group: Group) -> None:
    """What waits in Spring's retry topic waits until Spring is back."""
    group.send(5)
    listener.run(0, 1, 2, 4, refused=[3])
    group.send(5)
    group.run_worker(5, 6, 7, 8, 9)
    group.send(2)
    listener.run(3, 10, 11)


def test_dlq_reads_what_spring_gave_up_and_a_worker_runs_it(
    hasty_listener: Foreign, group: Group, commands: Commands
) -> None:
    group.send(4)
    hasty_listener.run(0, 1, 2, refused=[3] * ATTEMPTS)
    given_up = f"{group.topic}-dlt"
    config = ["-c", str(group.config()), "--topic", given_up, "--json"]
    (counts,) = commands.run("dlq", "list", *config).json["topics"].values()
    assert (counts["total"], counts["classes"]) == (1, {"java.lang.IllegalStateException": 1})
    shown = commands.run("dlq", "show", f"{group.topic}/1/1", *config).json
    assert {
        "dead_letter": f"{given_up}/0/0",
        "attempts": ATTEMPTS,
        "written_by": "spring",
    }.items() <= shown.items()
    group.run_worker(3, topics=[group.topic, given_up])
