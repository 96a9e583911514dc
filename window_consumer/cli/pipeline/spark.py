"""A Spark session for commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from window_consumer.model.errors import RunError, UsageError
from window_consumer.pipeline.jars import default_directory, ready
from window_consumer.pipeline.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MOST_TEXT: Final = 2000


@contextmanager
def session_for(plan: Plan, *, short: bool = False) -> Iterator[SparkSession]:
    """Give a session for a plan, and stop it at the end; ``short``: see ``session.start``.

    A session that is active already is taken as it is, and goes on. Raises UsageError where
    pyspark, Java or a jar is missing.
    """
    try:
        from window_consumer.pipeline import session  # noqa: PLC0415 - optional, and slow
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no {error.name}: pip install 'window-consumer[spark]'"
        ) from error
    # Under spark-submit the connectors are up to --jars and --packages.
    jars = [] if session.is_submitted() else ready(default_directory())
    from py4j.protocol import Py4JError  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    is_ours = SparkSession.getActiveSession() is None
    try:
        spark = session.start(
            "window-consumer pipeline", plan.master, jars, plan.spark, short=short
        )
    except Py4JError as error:
        raise RunError(f"Spark could not be started: {str(error)[:_MOST_TEXT]}") from error
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()
