"""Does the same on Spark as commands, with dummy data, so that Java loads the classes.

``python -m window_consumer.spark.warmup ARCHIVE JAR...`` makes Java write them to ``ARCHIVE``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from window_consumer.spark import class_archive, session, tables
from window_consumer.spark.jobs import JOBS
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.tables import BROKEN

_NOBODY: Final = {"bootstrap.servers": "127.0.0.1:1"}
_RECORD: Final = (
    "CAST(NULL AS binary) AS key",
    "CAST('{}' AS binary) AS value",
    "'warmup' AS topic",
    "0 AS partition",
    "CAST(value AS bigint) AS offset",
    "timestamp",
    "0 AS timestampType",
    "CAST(NULL AS array<struct<key: string, value: binary>>) AS headers",
)


def warm_up(spark: SparkSession, directory: str) -> None:
    """Write tables in a directory, and query them."""
    plan = PipelinePlan(kafka=_NOBODY, directory=directory)
    given = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()

    def write(records: DataFrame, batch: int) -> None:
        broken = BROKEN.make(spark, plan)
        for job in JOBS.values():
            judged = job.judge(records)
            rows = job.rows(tables.readable(judged), plan)
            job.table.append(rows, job.table.make(spark, plan), job.name, batch)
            BROKEN.append(tables.quarantined(judged, job.name), broken, job.name, batch)

    writer = given.selectExpr(*_RECORD).writeStream.foreachBatch(write)
    place = str(Path(directory, "checkpoint"))
    writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()

    for job in JOBS.values():
        if job.warm_up is not None:
            job.warm_up(spark, plan)


def main(archive: str, jars: Sequence[str]) -> None:
    """Start Spark, warm up, and stop it."""
    properties = {"spark.driver.defaultJavaOptions": class_archive.writing(archive)}
    spark = session.start("warmup", "local[2]", list(map(Path, jars)), properties, short=True)
    with TemporaryDirectory(dir=Path(archive).parent) as directory:
        warm_up(spark, directory)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
