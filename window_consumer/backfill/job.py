"""The job: records of Kafka in, what became of each of them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.backfill.results import COLUMNS, FINE
from window_consumer.backfill.shares import Share, ShareTask
from window_consumer.backfill.task import Task, WorkerPlan

_CREATE_TIME: Final = 1
"""What the client calls the kind of time that Spark calls 0."""


def handled(records: DataFrame, plan: WorkerPlan) -> DataFrame:
    """Call the worker's handler for each record; return what became of it, a row a record.

    ``records`` have the columns of Spark's Kafka source (``partition``, ``offset``, ``key``,
    ``value``, ``headers``, ``timestamp``, ``timestampType``) and are all of ``plan.topic``. Within
    a task they come in the order of their offsets, each once; order by key holds among the records
    of a task. The result has ``topic string, partition int, offset bigint, ok boolean, outcome
    string, reason string, error string, attempts int, duration_us bigint``: ``outcome`` is done,
    skipped, filtered, dead_lettered, expired or dropped, ``reason`` and ``error`` are those of the
    dead letter, ``duration_us`` is what all calls took together.

    Nothing is called before an action; each action calls handlers anew.
    """
    ready = records.select(
        "partition",
        "offset",
        "key",
        "value",
        "headers",
        F.unix_millis("timestamp").alias("time_ms"),
        (F.col("timestampType") + _CREATE_TIME).alias("time_kind"),
    )
    return _told(ready.mapInArrow(Task.of(plan), COLUMNS), plan)


def read_and_handled(
    session: SparkSession,
    plan: WorkerPlan,
    consumer: Mapping[str, Any],
    shares: Sequence[Share],
    *,
    skip_lost: bool = False,
) -> DataFrame:
    """Read these shares of ``plan.topic``, a task each, and call the worker's handler.

    ``consumer`` are the user's Kafka properties of consumers. Returns what ``handled`` returns.
    Raises RecordsGoneError in a task whose records the log does not hold any more, unless
    ``skip_lost``.
    """
    numbers = session.range(0, len(shares), 1, len(shares))
    task = ShareTask.of(plan, consumer, shares, skip_lost=skip_lost)
    return _told(numbers.mapInArrow(task, COLUMNS), plan)


def _told(found: DataFrame, plan: WorkerPlan) -> DataFrame:
    return found.select(
        F.lit(plan.topic).alias("topic"),
        "partition",
        "offset",
        F.col("outcome").isin(*FINE).alias("ok"),
        "outcome",
        "reason",
        "error",
        "attempts",
        "duration_us",
    )
