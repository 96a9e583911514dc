"""With which properties Spark is started: the user's own win."""

from __future__ import annotations

from pathlib import Path

from window_consumer.pipeline.session import SHORT, settings

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
