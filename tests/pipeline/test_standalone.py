"""The same command on a cluster of Spark's own: a master, two workers, and one that dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyspark
import pytest
from attrs import define, field

import window_consumer.__main__
from tests.conftest import MakeTopic
from tests.integration.members import wait_until
from tests.pipeline.streams import batch, configured, counted, planned, write
from window_consumer.pipeline import jars
from window_consumer.testing.real_kafka import RealKafka

PATIENCE_S = 300.0
BIN = Path(pyspark.__path__[0], "bin")
ENVIRONMENT = {
    **os.environ,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "PYSPARK_PYTHON": sys.executable,
}


@define
class Cluster:
    """A master and its workers, as processes of this machine."""

    master: str
    directory: Path
    processes: list[subprocess.Popen[bytes]] = field(factory=list)

    def start(self, name: str, *arguments: str) -> None:
        with (self.directory / "said").open("ab") as said:
            process = subprocess.Popen(
                [BIN / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                env=ENVIRONMENT,
                start_new_session=True,
                stdout=said,
                stderr=said,
            )
        self.processes.append(process)

    @property
    def said(self) -> str:
        return (self.directory / "said").read_text()

    def executors(self) -> list[int]:
        """Return the processes that work."""
        found = []
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = each.read_text().split("\0")
            except OSError:
                continue  # it has ended meanwhile
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in command and any(
                self.directory.as_posix() in part for part in command
            ):
                found.append(int(each.parent.name))
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    jars.fetch(jars.default_directory())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cluster = Cluster(f"spark://127.0.0.1:{port}", tmp_path)
    host = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as running:
        running.callback(_end, cluster)
        cluster.start("master.Master", *host, "--port", str(port))
        wait_until(lambda: "I have been elected leader" in cluster.said, PATIENCE_S, "a master")
        for number in range(2):
            work = str(tmp_path / f"worker-{number}")
            memory = ["--cores", "1", "--memory", "700m", "--work-dir", work]
            cluster.start("worker.Worker", *host, *memory, cluster.master)
        registered = "Successfully registered with master"
        wait_until(lambda: cluster.said.count(registered) == 2, PATIENCE_S, "two workers")
        yield cluster


def _end(cluster: Cluster) -> None:
    for process in reversed(cluster.processes):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_two_workers_one_of_which_loses_its_executor_count_nothing_twice(
    cluster: Cluster, kafka: RealKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    events = make_topic("events", 2)
    write(kafka.bootstrap, events, [batch(sequence, 1000) for sequence in range(18)])
    properties = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "600m",
        "spark.executor.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dof={tmp_path}",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    file = configured(
        tmp_path, kafka.bootstrap, events, batch_records=6, spark={"properties": properties}
    )
    run = ["pipeline", "run", "trace", "--once", "-c", str(file)]
    with (tmp_path / "driver").open("ab") as said:
        driver = subprocess.Popen(
            [sys.executable, "-m", "window_consumer", *run, "--master", cluster.master],
            env=ENVIRONMENT,
            stdout=said,
            stderr=said,
        )
    offsets = Path(planned(file).checkpoint("trace"), "offsets", "1")
    wait_until(partial(_is_there, offsets, driver), PATIENCE_S, "the second batch is planned")
    executors = cluster.executors()
    assert len(executors) == 2
    os.kill(executors[0], signal.SIGKILL)
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


def _is_there(path: Path, driver: subprocess.Popen[bytes]) -> bool:
    assert driver.poll() is None
    return path.exists()
