"""A driver that is killed, or has no room left, counts nothing twice and loses nothing."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from tests.conftest import MakeTopic
from tests.integration.members import wait_until
from tests.pipeline.streams import batch, configured, counted, planned, write
from window_consumer.testing.real_kafka import RealKafka

KILLS = 5
BATCHES = 34
EVENTS = 500
PATIENCE_S = 300.0
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}
RUN = [sys.executable, "-m", "window_consumer", "pipeline", "run", "trace", "--once"]


def start(directory: Path, most_bytes: int | None = None) -> subprocess.Popen[bytes]:
    """Start the job as a user does; with ``most_bytes`` no file gets longer."""

    def limit() -> None:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    with (directory / "said").open("ab") as said:
        return subprocess.Popen(
            RUN,
            cwd=directory,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=said,
            preexec_fn=limit,  # noqa: PLW1509 - no thread of a test runs here
        )


def begun(directory: Path) -> int:
    """Return how many batches were planned."""
    offsets = Path(planned(directory / "pipeline.yaml").checkpoint("trace"), "offsets")
    return len([each for each in offsets.glob("*") if each.name.isdigit()])


def test_the_table_is_exact_after_five_kills(
    kafka: RealKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    events = make_topic("events", 2)
    values = [batch(sequence, EVENTS) for sequence in range(BATCHES)]
    values[7:7] = [b"no event", b"{}"]
    write(kafka.bootstrap, events, values)
    configured(tmp_path, kafka.bootstrap, events, batch_records=5, spark={"properties": QUICK})
    rng = Random(7)
    for _ in range(KILLS):
        driver, wanted = start(tmp_path), begun(tmp_path) + 1
        wait_until(partial(is_begun, tmp_path, wanted), PATIENCE_S, "a batch is planned")
        # In another moment of it each time: while it is read, written, or noted as done.
        with suppress(subprocess.TimeoutExpired):
            driver.wait(rng.uniform(0, 1.5))
        os.killpg(driver.pid, signal.SIGKILL)
        assert driver.wait() == -signal.SIGKILL, "it has ended before"
    assert start(tmp_path).wait(PATIENCE_S) == 0, (tmp_path / "said").read_text()
    plan = planned(tmp_path / "pipeline.yaml")
    assert counted(plan) == {"rows": BATCHES * EVENTS, "distinct": BATCHES * EVENTS}
    assert counted(plan, "quarantine") == {"rows": 2, "distinct": 2}


def is_begun(directory: Path, batches: int) -> bool:
    return begun(directory) >= batches


def test_a_disk_without_room_ends_the_job_and_a_later_run_goes_on(
    kafka: RealKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    events = make_topic("events")
    write(kafka.bootstrap, events, [batch(sequence, 20_000) for sequence in range(4)])
    configured(tmp_path, kafka.bootstrap, events, spark={"properties": QUICK})
    assert start(tmp_path, most_bytes=400_000).wait(PATIENCE_S) == 1
    said = (tmp_path / "said").read_text()
    assert "File too large" in said
    assert "no room" in said
    assert start(tmp_path).wait(PATIENCE_S) == 0, (tmp_path / "said").read_text()
    plan = planned(tmp_path / "pipeline.yaml")
    assert counted(plan) == {"rows": 80_000, "distinct": 80_000}
