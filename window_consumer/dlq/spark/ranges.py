"""Reads the dead letters of a report from the table, or from Kafka if there is no table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from attrs import frozen
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.dlq.spark import table as dead_letters
from window_consumer.dlq.spark.config import DeadLetterSection, Reading
from window_consumer.dlq.spark.schema import LETTERS
from window_consumer.dlq.spark.summary import ReportRequest
from window_consumer.spark import snapshots, sources, tables
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.tables import BROKEN

_SKEW_MS = 60_000
"""A dead letter's time may precede its failure by this much, because clocks differ."""

_RECORD = ["topic", "partition", "offset", "written_at"]
"""The columns that identify a Kafka record, even if its topic was recreated."""


@frozen
class DeadLetterRange:
    """The dead letters of a request, and where they were read."""

    letters: DataFrame
    """A DataFrame of ``schema.DEAD_LETTERS``."""
    name: str
    unreadable: int
    """How many are missing because a later version wrote them."""


def table(
    session: SparkSession, plan: PipelinePlan, wishes: ReportRequest
) -> DeadLetterRange | None:
    """Return the dead letters in the pipeline's table; None if there is no table yet."""
    letters = snapshots.of(session, plan.table(LETTERS.name), LETTERS.schema)
    if letters is None:
        return None
    once = _once if snapshots.may_repeat(plan.table(LETTERS.name), "dlq") else _as_they_are
    unreadable = 0
    broken = snapshots.of(session, plan.table(BROKEN.name), BROKEN.schema, {"subject": "dlq"})
    if broken is not None and not broken.is_empty:
        rows = broken.rows
        if wishes.since_ms is not None:
            rows = rows.where(F.col("written_at") >= F.timestamp_millis(F.lit(wishes.since_ms)))
        unreadable = once(rows).count()
    changed = f"{datetime.fromtimestamp(letters.changed_ms / 1000, UTC):%Y-%m-%d %H:%M}"
    name = f"the table {plan.table(LETTERS.name)}, as the pipeline wrote it last at {changed} UTC"
    return DeadLetterRange(once(wishes.of(letters.rows)), name, unreadable)


def _once(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(_RECORD)


def _as_they_are(rows: DataFrame) -> DataFrame:
    return rows


@contextmanager
def kafka(
    session: SparkSession, plan: PipelinePlan, wishes: ReportRequest
) -> Iterator[DeadLetterRange]:
    """Yield the dead letters that the topics hold now, persisted inside the context."""
    given = sources.options(plan.kafka, plan.section(DeadLetterSection).pattern, pattern=True)
    # Retention may delete records while the query runs.
    given["failOnDataLoss"] = "false"
    if wishes.since_ms is not None:
        given["startingTimestamp"] = str(max(0, wishes.since_ms - _SKEW_MS))
        given["startingOffsetsByTimestampStrategy"] = "latest"
    seen = Observation()
    judged = dead_letters.judge(sources.bounded(session, given))
    unreadable = F.count(F.when(F.col("reason").isNotNull(), 1)).alias("unreadable")
    readable = tables.readable(judged.observe(seen, unreadable))
    letters = wishes.of(dead_letters.letters(readable, Reading.of(plan))).persist()
    try:
        letters.count()
        yield DeadLetterRange(letters, "the topics themselves", seen.get["unreadable"])
    finally:
        letters.unpersist()
