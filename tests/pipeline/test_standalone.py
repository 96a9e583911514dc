"""The same command on a cluster of Spark's own: a master, two workers, and one that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import window_consumer.__main__
from tests.conftest import MakeTopic
from tests.integration.members import wait_until
from tests.pipeline.standalone import BIN, ENVIRONMENT, PATIENCE_S, Cluster, standalone
from tests.pipeline.streams import batch, configured, counted, planned, write
from window_consumer.pipeline import jars
from window_consumer.testing.real_kafka import RealKafka


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone(tmp_path) as cluster:
        yield cluster


@pytest.mark.slow
def test_two_workers_one_of_which_loses_its_executor_count_nothing_twice(
    cluster: Cluster, kafka: RealKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    events = make_topic("events", 2)
    write(kafka.bootstrap, events, [batch(sequence, 1000) for sequence in range(6)])
    spark = {"properties": cluster.properties}
    file = configured(tmp_path, kafka.bootstrap, events, batch_records=6, spark=spark)
    run = ["pipeline", "run", "trace", "-c", str(file)]
    command = [sys.executable, "-m", "window_consumer"]
    with (tmp_path / "driver").open("ab") as said:
        driver = subprocess.Popen(
            # It does not end by itself: there is a driver whenever an executor is killed.
            [*command, *run, "--every", "100ms", "--master", cluster.master],
            env=ENVIRONMENT,
            stdout=said,
            stderr=said,
        )
    both = partial(_holds, driver, lambda: len(cluster.executors()) == 2)
    wait_until(both, PATIENCE_S, "two executors")
    write(kafka.bootstrap, events, [batch(sequence, 1000) for sequence in range(6, 18)])
    offsets = Path(planned(file).checkpoint("trace"), "offsets", "1")
    wait_until(partial(_holds, driver, offsets.exists), PATIENCE_S, "the second batch is planned")
    os.kill(cluster.executors()[0], signal.SIGKILL)
    wait_until(lambda: counted(planned(file))["rows"] >= 18_000, PATIENCE_S, "all is in the table")
    driver.send_signal(signal.SIGINT)
    assert driver.wait(PATIENCE_S) == 0, (tmp_path / "driver").read_text()
    assert counted(planned(file)) == {"rows": 18_000, "distinct": 18_000}
    write(kafka.bootstrap, events, [batch(1000)])
    connectors = ",".join(map(str, jars.ready(jars.default_directory())))
    submitted = subprocess.run(
        [
            BIN / "spark-submit",
            *("--master", cluster.master, "--jars", connectors),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=600m"),
            window_consumer.__main__.__file__,
            *run,
        ],
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE_S,
    )
    assert submitted.returncode == 0, submitted.stderr
    assert counted(planned(file)) == {"rows": 18_100, "distinct": 18_100}


def _holds(driver: subprocess.Popen[bytes], what: Callable[[], bool]) -> bool:
    assert driver.poll() is None
    return what()
