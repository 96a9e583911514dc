"""The same commands on a cluster of Spark's own: a master, two workers, and one that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

import window_consumer.__main__
from tests.commands import Commands
from tests.conftest import MakeTopic
from tests.pipeline.conftest import INTERPRETED, QUICK
from tests.pipeline.standalone import BIN, DEADLINE_S, ENVIRONMENT, SHORT_LIVED, Cluster, standalone
from tests.pipeline.streams import batch, configured, counted, planned, write
from tests.waiting import wait_until
from window_consumer.spark import jars
from window_consumer.testing.real_kafka import RealKafka

COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's defaults, for one run of the job that tests elsewhere interpret."""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory, connectors: list[Path]) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster"), connectors) as cluster:
        yield cluster


@pytest.fixture
def cluster(workers: Cluster) -> Cluster:
    """The cluster, when nothing runs there."""
    wait_until(lambda: not workers.executors(), DEADLINE_S, "executors of before are gone")
    return workers


# ---- a job


@pytest.mark.slow
def test_two_workers_one_of_which_loses_its_executor_count_nothing_twice(
    cluster: Cluster, kafka: RealKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    events = make_topic("events", 2)
    write(kafka.bootstrap, events, [batch(sequence, 1000) for sequence in range(6)])
    spark = {"properties": QUICK | INTERPRETED | cluster.properties}
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
    wait_until(both, DEADLINE_S, "two executors")
    write(kafka.bootstrap, events, [batch(sequence, 1000) for sequence in range(6, 18)])
    offsets = Path(planned(file).checkpoint("trace"), "offsets", "1")
    wait_until(partial(_holds, driver, offsets.exists), DEADLINE_S, "the second batch is planned")
    os.kill(cluster.executors()[0], signal.SIGKILL)
    wait_until(lambda: counted(planned(file))["rows"] >= 18_000, DEADLINE_S, "all is in the table")
    driver.send_signal(signal.SIGINT)
    assert driver.wait(DEADLINE_S) == 0, (tmp_path / "driver").read_text()
    assert counted(planned(file)) == {"rows": 18_000, "distinct": 18_000}
    write(kafka.bootstrap, events, [batch(1000)])
    connectors = ",".join(map(str, jars.ready(jars.default_directory())))
    submitted = subprocess.run(
        [
            BIN / "spark-submit",
            *("--master", cluster.master, "--jars", connectors),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=600m"),
            # Only the driver has the connectors in its class path: executors get them from it.
            *("--driver-class-path", cluster.class_path),
            *("--driver-java-options", cluster.java_options, "--total-executor-cores", "1"),
            *("--conf", f"spark.executor.extraJavaOptions={SHORT_LIVED}"),
            *("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.ui.enabled=false"),
            *(each for pair in COMPILED.items() for each in ("--conf", "=".join(pair))),
            window_consumer.__main__.__file__,
            *run,
        ],
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
        text=True,
        timeout=DEADLINE_S,
    )
    assert submitted.returncode == 0, submitted.stderr
    assert counted(planned(file)) == {"rows": 18_100, "distinct": 18_100}


def _holds(driver: subprocess.Popen[bytes], what: Callable[[], bool]) -> bool:
    assert driver.poll() is None
    return what()


# ---- a backfill

RECORDS, CHUNK = 600, 200

SHOP = """
import os
import time
from pathlib import Path
from window_consumer import App, Record

app = App("shop")
here = Path({directory!r})
(here / f"from-{{os.getpid()}}").write_text(__file__)

@app.handler("orders", group="shop", concurrency=8)
def charge(record: Record) -> None:
    with open(here / f"calls-{{os.getpid()}}", "a") as file:
        file.write(f"{{record.partition}} {{record.offset}}\\n")
    while record.offset >= int((here / "gate").read_text() or 0):
        time.sleep(0.05)
"""


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"fine", b"k%d" % number, partition=number % 2)
    assert producer.flush(DEADLINE_S) == 0


def calls(directory: Path) -> dict[str, Counter[tuple[int, int]]]:
    """Return how often each process has called each record."""
    return {
        file.name: Counter(
            (int(partition), int(offset))
            for partition, offset in map(str.split, file.read_text().splitlines())
        )
        for file in directory.glob("calls-*")
    }


@pytest.mark.slow
def test_the_tasks_of_an_executor_that_is_lost_run_again_and_nothing_else(
    cluster: Cluster,
    kafka: RealKafka,
    make_topic: Callable[..., str],
    commands: Commands,
    tmp_path: Path,
) -> None:
    topic = make_topic("orders", 2)
    fill(kafka.bootstrap, topic)
    commands.application(SHOP.format(directory=str(tmp_path)))
    kafka_config = {"bootstrap.servers": kafka.bootstrap}
    commands.configure({"kafka": kafka_config, "workers": {"charge": {"topics": [topic]}}})
    gate = tmp_path / "gate"
    gate.write_text("150")  # in the middle of the second chunk
    given = ["backfill", "shop:app", "--topic", topic, "--chunk", str(CHUNK)]
    given += ["--master", cluster.master, "--py-files", "shop.py"]
    for key, value in cluster.properties.items():
        given += ["--spark", f"{key}={value}"]
    backfill = commands.start(*given, env=ENVIRONMENT)

    def both_run() -> bool:
        assert backfill.process.poll() is None, backfill.said
        begun = [max(offset for _, offset in each) for each in calls(tmp_path).values() if each]
        return sum(offset >= 150 for offset in begun) == 2

    wait_until(both_run, DEADLINE_S, "a task of the second chunk runs on both executors")
    os.kill(cluster.executors()[0], signal.SIGKILL)
    backfill.wait_for("Spark retries", timeout_s=DEADLINE_S)
    gate.write_text(str(RECORDS))
    ended = backfill.wait(DEADLINE_S)
    assert ended.code == 0, ended.said
    table = DeltaTable(tmp_path / "backfills" / "tables" / "results").to_pyarrow_table()
    rows = Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    everything = {(partition, offset) for partition in (0, 1) for offset in range(RECORDS // 2)}
    assert rows == Counter(everything)
    called = sum(calls(tmp_path).values(), Counter[tuple[int, int]]())
    assert called.keys() == everything
    twice = {place for place, count in called.items() if count > 1}
    # A chunk has a hundred records of each partition, and one task had those of one.
    assert twice
    assert twice < {(place, offset) for place in (0, 1) for offset in range(100, 200)}
    assert len({partition for partition, _ in twice}) == 1
    imported = {file.read_text() for file in tmp_path.glob("from-*")}
    brought = {each for each in imported if each.startswith(f"{cluster.directory}/worker-")}
    assert imported - brought == {f"{tmp_path}/shop.py"}  # the driver's
    assert len(brought) >= 2
