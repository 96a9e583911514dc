"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import MakeTopic
from window_consumer.testing.real_kafka import RealKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.here import Pipeline

# With one compiler Java keeps 48 MB of code: full after a minute, it throws code away and makes it
# again. New objects have a third of the memory, so that few are copied.
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xmn400m"
QUICK = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.memory": "1g",
    # A table's log has a few lines.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # Each query's plan is turned into text, which is never read.
    "spark.sql.debug.maxToStringFields": "1",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
"""For commands that tests start."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For the tests' own session, and commands that run what others run compiled.

To compile code for a few rows takes longer than the rows.
"""


@pytest.fixture(scope="session", autouse=True)
def class_archive(connectors: list[Path]) -> None:
    """The archive of classes, from which each command of a test starts faster."""
    from window_consumer.spark import class_archive  # noqa: PLC0415 - optional

    try:
        class_archive.make(connectors)
    except class_archive.NoArchiveError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI has to have a Java that makes archives: {error}")


@pytest.fixture(scope="session")
def spark(connectors: list[Path]) -> Iterator[SparkSession]:
    """A session with all connectors, for small jobs."""
    from window_consumer.spark import session  # noqa: PLC0415 - optional, and slow

    made = session.start("tests", "local[2]", connectors, QUICK | INTERPRETED)
    yield made
    made.stop()


@pytest.fixture
def pipeline(
    spark: SparkSession, kafka: RealKafka, make_topic: MakeTopic, tmp_path: Path
) -> Pipeline:
    """A topic that no other test has, and a directory."""
    from tests.pipeline.here import Pipeline  # noqa: PLC0415 - it imports Spark

    return Pipeline(spark, kafka, make_topic("events"), tmp_path)
