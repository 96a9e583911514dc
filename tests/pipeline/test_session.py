"""With which properties Spark is started: the user's own win. And whose it is to stop it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.commands import Commands
from tests.pipeline.gates import DEADLINE_S
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.session import SHORT, settings
from window_consumer.spark.wire import session_for

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


def test_the_users_own_jars_stay_beside_ours() -> None:
    mine = {"spark.jars": "/mine.jar,/jars/a.jar", "spark.driver.extraClassPath": "/mine:/more"}
    here, there = settings("local[*]", JARS, mine), settings("spark://spark:7077", JARS, mine)
    assert here["spark.driver.extraClassPath"] == "/mine:/more:/jars/a.jar:/jars/b.jar"
    assert here["spark.jars"] == mine["spark.jars"]
    assert there["spark.jars"] == "/mine.jar,/jars/a.jar,/jars/b.jar"
    assert there["spark.driver.extraClassPath"] == mine["spark.driver.extraClassPath"]


def test_the_users_own_extensions_stay_beside_that_of_the_tables() -> None:
    key, delta = "spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"
    assert settings("local[*]", (), {})[key] == delta
    assert (
        settings("local[*]", (), {key: "org.mine.Extension"})[key] == f"org.mine.Extension,{delta}"
    )


def test_a_command_takes_the_session_that_is_there_and_lets_it_go_on(spark: SparkSession) -> None:
    with session_for(PipelinePlan(kafka={}, directory="nowhere")) as given:
        assert given.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


WARNED = """
from window_consumer.spark import jars, session

ready = jars.ready(jars.default_directory())
spark = session.start("quiet", "local[1]", ready, {}, short=True)
print(spark.range(3).count())
spark.sparkContext._jvm.org.slf4j.LoggerFactory.getLogger("shop").warn("look")
spark.stop()
"""


@pytest.mark.usefixtures("connectors")
def test_a_session_says_what_matters_and_no_more(commands: Commands) -> None:
    """The line that is left is Java's, which asks nobody."""
    ended = commands.script(WARNED, timeout_s=DEADLINE_S)
    assert ended.out == "3\n", ended.said
    said = [line for line in ended.err.splitlines() if "incubator" not in line]
    assert [line.endswith("WARN shop: look") for line in said] == [True]
