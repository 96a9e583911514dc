"""With which properties Spark is started: the user's own win. And whose it is to stop it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from window_consumer.cli.pipeline.spark import session_for
from window_consumer.pipeline.plan import Plan
from window_consumer.pipeline.session import SHORT, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = (Path("/jars/a.jar"), Path("/jars/b.jar"))


def test_a_short_command_gets_a_session_that_is_up_sooner() -> None:
    """... on this machine: on a cluster the work is not done here."""
    assert settings("local[*]", JARS, {}, short=True).items() >= SHORT.items()
    assert not settings("local[*]", JARS, {}).items() & SHORT.items()
    assert not settings("spark://spark:7077", JARS, {}, short=True).items() & SHORT.items()


def test_what_the_configuration_says_wins() -> None:
    mine = {"spark.driver.extraJavaOptions": "-Xss4m", "spark.sql.shuffle.partitions": "200"}
    assert settings("local[2]", JARS, mine, short=True).items() >= mine.items()


def test_jars_are_sent_to_a_cluster_and_used_where_they_lie_on_this_machine() -> None:
    here, there = settings("local[*]", JARS, {}), settings("spark://spark:7077", JARS, {})
    assert here["spark.driver.extraClassPath"] == "/jars/a.jar:/jars/b.jar"
    assert there["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert "spark.jars" not in here


def test_a_command_takes_the_session_that_is_there_and_lets_it_go_on(spark: SparkSession) -> None:
    with session_for(Plan(kafka={}, directory="nowhere")) as given:
        assert given.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3
