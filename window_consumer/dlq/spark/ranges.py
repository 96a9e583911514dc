"""Where dead letters are read for a report: from the table, or from Kafka where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from attrs import frozen
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.dlq.spark import table as dead_letters
from window_consumer.dlq.spark.schema import LETTERS
from window_consumer.dlq.spark.summary import ReportRequest
from window_consumer.spark import (
    quarantine,
    snapshots,
    sources,
)
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.tables import BROKEN

_SKEW_MS = 60_000
"""A dead letter may have a time that is so much older than its failure: clocks differ."""

_RECORD = ["topic", "partition", "offset", "written_at"]
"""What tells a Kafka record, also from one of a topic that had the name before."""


@frozen
class DeadLetterRange:
    """Dead letters that are asked for, and where they were read."""

    letters: DataFrame
    """``schema.DEAD_LETTERS``."""
    name: str
    unreadable: int
    """How many are not among them, because a later version wrote them."""


def table(
    session: SparkSession, plan: PipelinePlan, wishes: ReportRequest
) -> DeadLetterRange | None:
    """Return the dead letters of the pipeline's table; None where there is no table yet."""
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
    """Lend the dead letters that the topics hold now; they are kept while they are lent."""
    given = sources.options(plan.kafka, plan.dlq_pattern, pattern=True)
    # What retention takes away meanwhile is no longer asked for.
    given["failOnDataLoss"] = "false"
    if wishes.since_ms is not None:
        given["startingTimestamp"] = str(max(0, wishes.since_ms - _SKEW_MS))
        given["startingOffsetsByTimestampStrategy"] = "latest"
    seen = Observation()
    judged = dead_letters.judge(sources.bounded(session, given))
    unreadable = F.count(F.when(F.col("reason").isNotNull(), 1)).alias("unreadable")
    readable = quarantine.readable(judged.observe(seen, unreadable))
    letters = wishes.of(dead_letters.letters(readable, plan.dlq_reading)).persist()
    try:
        letters.count()
        yield DeadLetterRange(letters, "the topics themselves", seen.get["unreadable"])
    finally:
        letters.unpersist()
