"""The Spark session: found where there is one, made where there is none.

Under spark-submit, or in a notebook, the session that is there is used as it is: its master, its
memory and its jars are the business of who started it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from window_consumer.spark import (
    class_archive,
    java,
)

_EXTENSIONS: Final = "spark.sql.extensions"
_DELTA: Final = {
    _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_USUAL: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.ui.showConsoleProgress": "false",
    # To note where in Python each column was made takes half of the time in which a plan is made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
SHORT: Final = {
    # One compiler: what C2 makes is ready when the command is over, and it takes half of the time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Plans that are made anew after each stage take longer than what they save.
    "spark.sql.adaptive.enabled": "false",
    # What a task costs before its first row is more than its rows.
    "spark.sql.shuffle.partitions": str(min(8, os.cpu_count() or 1)),
    # The files of a table are listed here, and not by a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.ui.enabled": "false",
}
"""For commands that take seconds, where Spark runs on this machine."""

_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


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
        java.check()
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
    is_here = master.startswith("local")
    ours = {**_DELTA, **_USUAL}
    if is_here:
        ours |= {**_LOOPBACK, **(SHORT if short else {}), **_java_options(jars)}
    chosen = {**ours, **properties, "spark.master": master}
    if jars and is_here:
        # As they lie there: as spark.jars they would be copied at each start.
        _append(chosen, "spark.driver.extraClassPath", map(str, jars), os.pathsep)
    elif jars:
        _append(chosen, "spark.jars", map(str, jars), ",")
    _append(chosen, _EXTENSIONS, [_DELTA[_EXTENSIONS]], ",")
    return chosen


def _append(chosen: dict[str, str], key: str, ours: Iterable[str], separator: str) -> None:
    """Add to a list of the user's what is not in it yet, behind what he has chosen himself."""
    listed = [each for each in chosen.get(key, "").split(separator) if each]
    chosen[key] = separator.join(dict.fromkeys([*listed, *ours]))


def _java_options(jars: Sequence[Path]) -> dict[str, str]:
    """Return how Java is started: from an archive, and what it says on stderr."""
    quiet = f"-Dlog4j2.configurationFile={files(__package__).joinpath('log4j2.properties')}"
    options = [class_archive.options(jars), f'"{quiet}"' if " " in quiet else quiet]
    # Spark puts these before those that the user sets.
    return {"spark.driver.defaultJavaOptions": " ".join(filter(None, options))}


def is_submitted() -> bool:
    """Tell whether spark-submit has started this program."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> dict[str, str]:
    """Return what spark-submit, and the files that it reads, have set."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - the settings are there once the JVM is known
    return dict(SparkConf().getAll())
