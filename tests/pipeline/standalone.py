"""A cluster of Spark's own on this machine: a master and two workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from attrs import define, field

from tests.waiting import wait_until
from window_consumer.spark import class_archive

DEADLINE_S = 600.0
BIN = Path(pyspark.__path__[0], "bin")
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What a second compiler makes is ready when a test is over, and one thread frees memory."""

ENVIRONMENT = {
    **os.environ,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "PYSPARK_PYTHON": sys.executable,
}


@define
class Cluster:
    """A master and its workers, as processes of this machine."""

    directory: Path
    connectors: Sequence[Path]
    master: str = ""
    processes: list[subprocess.Popen[bytes]] = field(factory=list)

    def start(self, name: str, *arguments: str) -> None:
        environment = {
            **ENVIRONMENT,
            "SPARK_DAEMON_CLASSPATH": self.class_path,
            "SPARK_DAEMON_JAVA_OPTS": self.java_options,
        }
        with (self.directory / "said").open("ab") as said:
            process = subprocess.Popen(
                [BIN / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                env=environment,
                start_new_session=True,
                stdout=said,
                stderr=said,
            )
        self.processes.append(process)

    @property
    def class_path(self) -> str:
        """The jars that precede Spark's own where the archive of classes was made."""
        return os.pathsep.join(map(str, self.connectors))

    @property
    def java_options(self) -> str:
        """Options of short-lived processes, which start from the archive of classes."""
        return f"{SHORT_LIVED} {class_archive.options(self.connectors)}"

    @property
    def properties(self) -> dict[str, str]:
        """Spark's properties for drivers of this cluster."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "600m",
            "spark.executor.extraClassPath": self.class_path,
            "spark.executor.extraJavaOptions": f"{self.java_options} -Dof={self.directory}",
            "spark.driver.extraClassPath": self.class_path,
            "spark.driver.extraJavaOptions": self.java_options,
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }

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


@contextmanager
def standalone(directory: Path, connectors: Sequence[Path]) -> Iterator[Cluster]:
    """A master and two workers with a core each."""
    cluster = Cluster(directory, connectors)
    host = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as running:
        running.callback(_end, cluster)
        cluster.start("master.Master", *host, "--port", "0")
        wait_until(lambda: "New state: ALIVE" in cluster.said, DEADLINE_S, "a master")
        [cluster.master] = re.findall(r"Starting Spark master at (spark://\S+)\n", cluster.said)
        for number in range(2):
            work = str(directory / f"worker-{number}")
            memory = ["--cores", "1", "--memory", "700m", "--work-dir", work]
            cluster.start("worker.Worker", *host, *memory, cluster.master)
        registered = "Successfully registered with master"
        wait_until(lambda: cluster.said.count(registered) == 2, DEADLINE_S, "two workers")
        yield cluster


def _end(cluster: Cluster) -> None:
    for process in reversed(cluster.processes):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
