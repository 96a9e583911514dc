"""The Spark session: found where there is one, made where there is none.

Under spark-submit, or in a notebook, the session that is there is used as it is: its master, its
memory and its jars are the business of who started it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from window_consumer.model.errors import UsageError

JAVA_AT_LEAST: Final = 17

_DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_USUAL: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.ui.showConsoleProgress": "false",
}
SHORT: Final = {
    # One compiler: what C2 makes is ready when the command is over, and it takes half of the time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Plans that are made anew after each stage take longer than what they save.
    "spark.sql.adaptive.enabled": "false",
    # The files of a table are listed here, and not by a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.ui.enabled": "false",
}
"""For commands that take seconds, where Spark runs on this machine."""

_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class NoJavaError(UsageError):
    """Spark needs a Java that is not there; the message says which."""


def check_java() -> None:
    """Raise NoJavaError where Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).is_file():
        where = f"JAVA_HOME is {home}, and there is none" if home else "no `java` found"
        raise NoJavaError(
            f"{where}: Spark needs Java {JAVA_AT_LEAST} or later (Debian: apt-get install"
            f" openjdk-{JAVA_AT_LEAST}-jre-headless)"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - the user's own Java
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_AT_LEAST:
        raise NoJavaError(f"{java} is too old: Spark needs Java {JAVA_AT_LEAST}, it says {said!r}")


def start(
    name: str,
    master: str | None,
    jars: Sequence[Path],
    properties: Mapping[str, str],
    *,
    short: bool = False,
) -> SparkSession:
    """Return the session that is active, else a new one.

    ``master`` is ``local[*]`` for None. ``properties`` are Spark's own, and win over ours; what
    spark-submit was given wins over all. ``short`` is for what takes seconds: such a session is
    up sooner, and slower in the long run. Raises NoJavaError.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    given = _submitted() if is_submitted() else {}
    if not given:
        check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    where = given.get("spark.master") or master or properties.get("spark.master") or "local[*]"
    builder = SparkSession.builder.appName(name)
    for key, value in {**settings(where, jars, properties, short=short), **given}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def settings(
    master: str, jars: Sequence[Path], properties: Mapping[str, str], *, short: bool = False
) -> dict[str, str]:
    """Return all properties of a new session, as ``start`` takes them."""
    chosen = {**_DELTA, **_USUAL, **properties, "spark.master": master}
    if master.startswith("local"):
        chosen = {**_LOOPBACK, **(SHORT if short else {}), **chosen}
    if jars and master.startswith("local"):
        # As they lie there: as spark.jars they would be copied at each start.
        chosen["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
    elif jars:
        chosen["spark.jars"] = ",".join(map(str, jars))
    return chosen


def is_submitted() -> bool:
    """Tell whether spark-submit has started this program."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> dict[str, str]:
    """Return what spark-submit, and the files that it reads, have set."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - the settings are there once the JVM is known
    return dict(SparkConf().getAll())
