"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from window_consumer.model.errors import WindowConsumerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with all connectors, for small jobs."""
    from window_consumer.pipeline import jars, session  # noqa: PLC0415 - optional, and slow

    try:
        session.check_java()
        jars.fetch(jars.default_directory())
    except WindowConsumerError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI has to have Spark: {error}")
        pytest.skip(f"no Spark: {error}")
    made = session.start("tests", "local[2]", jars.ready(jars.default_directory()), QUICK)
    yield made
    made.stop()
