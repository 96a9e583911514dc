"""Kafka is away for a minute, as long as its clients wait; and meanwhile a disk has no room."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pytest
from attrs import frozen
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import Command, Commands
from tests.conftest import MakeTopic
from tests.pipeline import here
from tests.pipeline.conftest import INTERPRETED, QUICK
from tests.pipeline.streams import batch, configured, counted, planned, write
from tests.waiting import wait_until
from window_consumer.testing.real_kafka import RealKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AWAY_S = 60.0
DEADLINE_S = 240.0
EVENTS = "events"

MOST_BYTES = 400_000
"""No file gets longer while a disk has no room."""


@frozen
class Outage:
    """A job that goes on, and its Kafka, which was killed when it had read all there was."""

    kafka: RealKafka
    began: float
    commands: Commands
    running: Command
    said_before: int

    @property
    def file(self) -> Path:
        return self.commands.directory / "pipeline.yaml"

    @property
    def said(self) -> str:
        """What the job has said since."""
        return self.running.said[self.said_before :]

    @property
    def retries(self) -> bool:
        """Whether the job has given up waiting for an answer, and tries again."""
        lines = self.said.splitlines()
        return any(self.kafka.bootstrap in each and "retrying in" in each for each in lines)

    def has(self, count: int) -> bool:
        return has(self.running, self.file, count)


def has(running: Command, file: Path, count: int) -> bool:
    """Return whether the table has so many rows; the job still has to run."""
    assert running.process.poll() is None, running.said
    plan = planned(file)
    is_there = Path(plan.table("trace"), "_delta_log", f"{0:020}.json").exists()
    return is_there and counted(plan)["rows"] >= count


@pytest.fixture(scope="module")
def outage(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outage]:
    """The minute in which Kafka is away; other tests may pass meanwhile."""
    assert kafka.bootstrap, "skipped where there is none"
    directory = tmp_path_factory.mktemp("outage")
    with RealKafka.start(tmp_path_factory.mktemp("own")) as own, Commands(directory) as commands:
        admin = AdminClient({"bootstrap.servers": own.bootstrap, "log_level": 0})
        topics.make(admin, NewTopic(EVENTS, 1, 1))
        write(own.bootstrap, EVENTS, [batch(sequence) for sequence in range(3)])
        spark = {"properties": QUICK | INTERPRETED}
        file = configured(directory, own.bootstrap, EVENTS, spark=spark)
        running = commands.start("pipeline", "run", "trace", "--every", "1s")
        wait_until(lambda: has(running, file, 300), DEADLINE_S, "all is in the table")
        said_before = len(running.said)
        own.kill()
        yield Outage(own, monotonic(), commands, running, said_before)


@pytest.mark.slow
@pytest.mark.parametrize("job", ["trace", "dlq"])
def test_a_job_that_is_to_run_once_ends_without_kafka_and_makes_nothing(
    outage: Outage, spark: SparkSession, job: str, tmp_path: Path
) -> None:
    """... be it one that names its topic, or one that looks for topics."""
    file = configured(tmp_path, outage.kafka.bootstrap, EVENTS)
    ended = here.run(spark, "pipeline", "run", job, "-c", str(file), "--once")
    assert ended.code == 1, ended.said
    assert outage.kafka.bootstrap in ended.err
    assert "15 s" in ended.err
    assert not (tmp_path / "tables of a test").exists()


@pytest.mark.slow
def test_a_disk_without_room_ends_the_job_and_a_later_run_goes_on(
    spark: SparkSession, kafka: RealKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    events = make_topic("events")
    write(kafka.bootstrap, events, [batch(sequence, 20_000) for sequence in range(4)])
    file = configured(tmp_path, kafka.bootstrap, events)
    with without_room(spark):
        ended = here.run(spark, "pipeline", "run", "trace", "--once", "-c", str(file))
    assert ended.code == 1, ended.said
    assert os.strerror(errno.EFBIG) in ended.err
    assert "disk" in ended.err
    here.run_job(spark, file)
    assert counted(planned(file)) == {"rows": 80_000, "distinct": 80_000}


@contextmanager
def without_room(spark: SparkSession) -> Iterator[None]:
    """Let Java write no file that is longer, nor the Python that it may start meanwhile."""
    assert spark._jvm is not None
    java: int = spark._jvm.java.lang.ProcessHandle.current().pid()
    before = resource.prlimit(java, resource.RLIMIT_FSIZE)
    resource.prlimit(java, resource.RLIMIT_FSIZE, (MOST_BYTES, before[1]))
    try:
        yield
    finally:
        for process in descendants(java):
            with suppress(ProcessLookupError):
                resource.prlimit(process, resource.RLIMIT_FSIZE, before)


def descendants(process: int) -> Iterator[int]:
    """Yield a process and all that it, or one of them, has started."""
    yield process
    for file in Path("/proc", str(process), "task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in file.read_text().split():
                yield from descendants(int(child))


@pytest.mark.slow
def test_a_job_goes_on_after_its_kafka_was_away_for_a_minute(outage: Outage) -> None:
    """... as the same process."""
    with pytest.raises(subprocess.TimeoutExpired):
        outage.running.process.wait(max(0.0, AWAY_S - (monotonic() - outage.began)))
    wait_until(lambda: outage.retries, DEADLINE_S, "it has given up waiting for an answer")
    outage.kafka.restart()
    write(outage.kafka.bootstrap, EVENTS, [batch(sequence) for sequence in range(3, 6)])
    wait_until(lambda: outage.has(600), DEADLINE_S, "what has come since is in the table")
    outage.running.signal(signal.SIGTERM)
    ended = outage.running.wait(DEADLINE_S)
    assert ended.code == 0, ended.said
    assert counted(planned(outage.file)) == {"rows": 600, "distinct": 600}
