"""A driver that is killed counts nothing twice and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.conftest import MakeTopic
from tests.pipeline.conftest import INTERPRETED, QUICK
from tests.pipeline.here import run_job
from tests.pipeline.streams import batch, configured, counted, planned, write
from tests.waiting import wait_until
from window_consumer.testing.real_kafka import RealKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = 2
"""One at any moment of a batch, and one when it is written but not noted as done."""
FIRST, MORE = 12, 5
"""So many batches of events lie there at first, and so many come before each kill."""
EVENTS = 500
DEADLINE_S = 600.0
PROPERTIES = QUICK | INTERPRETED | {"spark.sql.shuffle.partitions": "1"}
RUN = [sys.executable, "-m", "window_consumer", "pipeline", "run", "trace", "--every", "100ms"]


def start(directory: Path) -> subprocess.Popen[bytes]:
    """Start the job as a user does."""
    with (directory / "said").open("ab") as said:
        return subprocess.Popen(
            RUN, cwd=directory, start_new_session=True, stdout=subprocess.DEVNULL, stderr=said
        )


def begun(directory: Path) -> int:
    """Return how many batches were planned."""
    offsets = Path(planned(directory / "pipeline.yaml").checkpoint("trace"), "offsets")
    return len([each for each in offsets.glob("*") if each.name.isdigit()])


def written(directory: Path) -> int:
    """Return how many batches the table has: each is a version, after the one that made it."""
    log = Path(planned(directory / "pipeline.yaml").table("trace"), "_delta_log")
    return len([*log.glob("*.json")]) - 1


def are_there(counted_by: Callable[[Path], int], directory: Path, batches: int) -> bool:
    return counted_by(directory) >= batches


@pytest.mark.slow
def test_the_table_is_exact_after_kills(
    spark: SparkSession, kafka: RealKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    events = make_topic("events", 2)
    numbers = count()
    values = [batch(next(numbers), EVENTS) for _ in range(FIRST)]
    values[7:7] = [b"no event", b"{}"]
    write(kafka.bootstrap, events, values)
    configured(
        tmp_path, kafka.bootstrap, events, batch_records=MORE, spark={"properties": PROPERTIES}
    )
    rng = Random(7)
    for number in range(KILLS):
        wanted = begun(tmp_path) + 1
        # What has come since, and so is in work when it is planned; and it never ends by itself.
        write(kafka.bootstrap, events, [batch(next(numbers), EVENTS) for _ in range(MORE)])
        driver = start(tmp_path)
        # While a batch is read or written, and in turn when it is, but not noted as done.
        wait_until(partial(are_there, begun, tmp_path, wanted), DEADLINE_S, "a batch is planned")
        if number % 2:
            wait_until(partial(are_there, written, tmp_path, wanted), DEADLINE_S, "it is written")
        else:
            with suppress(subprocess.TimeoutExpired):
                driver.wait(rng.uniform(0, 1.5))
        os.killpg(driver.pid, signal.SIGKILL)
        assert driver.wait() == -signal.SIGKILL, (tmp_path / "said").read_text()
    run_job(spark, tmp_path / "pipeline.yaml")
    plan = planned(tmp_path / "pipeline.yaml")
    sent = (FIRST + KILLS * MORE) * EVENTS
    assert counted(plan) == {"rows": sent, "distinct": sent}
    assert counted(plan, "quarantine") == {"rows": 2, "distinct": 2}
