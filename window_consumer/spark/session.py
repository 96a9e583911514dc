"""Finds the active Spark session, or starts one.

Under spark-submit or in a notebook, the existing session is used unchanged: the program that
started it decides its master, memory and jars.
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

from window_consumer.spark import class_archive, java

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
    # Recording each column's position in the Python code takes half of the planning time.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
SHORT: Final = {
    # C1 only: C2 takes half of the time, and its code is ready only when the command ends.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Planning again after each stage takes longer than it saves.
    "spark.sql.adaptive.enabled": "false",
    # Starting a task costs more than its rows.
    "spark.sql.shuffle.partitions": str(min(8, os.cpu_count() or 1)),
    # List the files of a table here, not in a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.ui.enabled": "false",
}
"""For commands that take seconds, if Spark runs on this machine."""

_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def start(
    name: str,
    master: str | None,
    jars: Sequence[Path],
    properties: Mapping[str, str],
    *,
    short: bool = False,
) -> SparkSession:
    """Return the active session, else a new one.

    ``master`` is ``local[*]`` for None. ``properties`` are Spark's own, and override ours; those of
    spark-submit override all. A ``short`` session starts sooner but is slower in the long run.
    Raises NoJavaError.
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
    """Return all properties of a new session, with the arguments of ``start``."""
    is_here = master.startswith("local")
    ours = {**_DELTA, **_USUAL}
    if is_here:
        ours |= {**_LOOPBACK, **(SHORT if short else {}), **_java_options(jars)}
    chosen = {**ours, **properties, "spark.master": master}
    if jars and is_here:
        # The class path uses them in place: spark.jars would copy them at each start.
        _append(chosen, "spark.driver.extraClassPath", map(str, jars), os.pathsep)
    elif jars:
        _append(chosen, "spark.jars", map(str, jars), ",")
    _append(chosen, _EXTENSIONS, [_DELTA[_EXTENSIONS]], ",")
    return chosen


def _append(chosen: dict[str, str], key: str, ours: Iterable[str], separator: str) -> None:
    """Append missing entries to the user's list."""
    listed = [each for each in chosen.get(key, "").split(separator) if each]
    chosen[key] = separator.join(dict.fromkeys([*listed, *ours]))


def _java_options(jars: Sequence[Path]) -> dict[str, str]:
    """Return Java's start options: the archive, and the log configuration."""
    quiet = f"-Dlog4j2.configurationFile={files(__package__).joinpath('log4j2.properties')}"
    options = [class_archive.options(jars), f'"{quiet}"' if " " in quiet else quiet]
    # Spark puts these before the user's options.
    return {"spark.driver.defaultJavaOptions": " ".join(filter(None, options))}


def is_submitted() -> bool:
    """Return whether spark-submit started this program."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit and of the files that it reads."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - the settings are there once the JVM is known
    return dict(SparkConf().getAll())
