"""Kafka is away for a minute, as long as its clients wait for an answer."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import Command, Commands
from tests.integration.members import wait_until
from tests.pipeline.conftest import QUICK
from tests.pipeline.streams import batch, configured, counted, planned, write
from window_consumer.testing.real_kafka import RealKafka

AWAY_S = 60.0
PATIENCE_S = 240.0
EVENTS = "events"


@pytest.fixture
def own(kafka: RealKafka, tmp_path: Path) -> Iterator[RealKafka]:
    """One that may be killed, with a topic of events."""
    assert kafka.pid is not None, "skipped where there is none"
    with RealKafka.start(tmp_path / "kafka") as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap, "log_level": 0})
        topics.make(admin, NewTopic(EVENTS, 1, 1))
        yield started


def rows(file: Path) -> int:
    """Return how many rows the table of events has, none where there is no table yet."""
    plan = planned(file)
    is_there = Path(plan.table("trace"), "_delta_log", f"{0:020}.json").exists()
    return counted(plan)["rows"] if is_there else 0


def start_once(commands: Commands, bootstrap: str, job: str) -> Command:
    """Start a job that is to run once, with a place of its own."""
    config: dict[str, Any] = {
        "kafka": {"bootstrap.servers": bootstrap},
        "directory": f"tables of {job}",
        "trace": {"topic": EVENTS},
    }
    (commands.directory / f"{job}.yaml").write_text(json.dumps(config))
    return commands.start("pipeline", "run", job, "-c", f"{job}.yaml", "--once")


@pytest.mark.slow
def test_a_job_goes_on_after_kafka_was_away_for_a_minute(
    own: RealKafka, commands: Commands
) -> None:
    """... as the same process; one that is to run once ends meanwhile, and nothing is made."""
    write(own.bootstrap, EVENTS, [batch(sequence) for sequence in range(3)])
    file = configured(commands.directory, own.bootstrap, EVENTS, spark={"properties": QUICK})
    running = commands.start("pipeline", "run", "trace", "--every", "1s")

    def has(count: int) -> bool:
        assert running.process.poll() is None, running.said
        return rows(file) >= count

    wait_until(lambda: has(300), PATIENCE_S, "what lay there is in the table")
    before = len(running.said)
    own.kill()
    jobs = {job: start_once(commands, own.bootstrap, job) for job in ("trace", "dlq")}
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(AWAY_S)
    wait_until(
        lambda: "TimeoutException" in running.said[before:],
        PATIENCE_S,
        "its client has given up waiting for an answer",
    )
    assert f"/{own.bootstrap}) could not be established" in running.said[before:]
    for job, once in jobs.items():
        ended = once.wait(PATIENCE_S)
        assert ended.code == 1, ended.said
        assert f"no broker at {own.bootstrap} answered within 15 s" in ended.err
        assert not (commands.directory / f"tables of {job}").exists()
    own.restart()
    write(own.bootstrap, EVENTS, [batch(sequence) for sequence in range(3, 6)])
    wait_until(lambda: has(600), PATIENCE_S, "what has come since is in the table")
    running.signal(signal.SIGTERM)
    ended = running.wait(PATIENCE_S)
    assert ended.code == 0, ended.said
    assert counted(planned(file)) == {"rows": 600, "distinct": 600}
