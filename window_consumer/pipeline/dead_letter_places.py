"""Where dead letters are read for a report: from the table, or from Kafka where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.pipeline import dead_letters, quality, sources
from window_consumer.pipeline.dead_letter_summary import Wishes
from window_consumer.pipeline.plan import Plan
from window_consumer.pipeline.schemas import DEAD_LETTERS
from window_consumer.pipeline.tables import BROKEN, LETTERS

_SKEW_MS = 60_000
"""A dead letter may have a time that is so much older than its failure: clocks differ."""

_MISSING = ("DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "PATH_NOT_FOUND")


@frozen
class Place:
    """Dead letters that are asked for, and where they were read."""

    letters: DataFrame
    """``schemas.DEAD_LETTERS``."""
    name: str
    unreadable: int
    """How many are not among them, because a later version wrote them."""


def table(session: SparkSession, plan: Plan, wishes: Wishes) -> Place | None:
    """Return the dead letters of the pipeline's table; None where there is no table yet."""
    path = plan.table(LETTERS.name)
    rows = _table(session, path)
    if rows is None:
        return None
    # A table of an older version lacks what came later.
    known = [
        F.col(each.name) if each.name in rows.columns else F.lit(None).cast(each.dataType)
        for each in DEAD_LETTERS
    ]
    columns = [column.alias(each.name) for column, each in zip(known, DEAD_LETTERS, strict=True)]
    (change,) = (
        session.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1")
        .select(F.date_format("timestamp", "yyyy-MM-dd HH:mm").alias("at"))
        .collect()
    )
    broken = _table(session, plan.table(BROKEN.name))
    unreadable = 0
    if broken is not None:
        broken = broken.where(F.col("subject") == "dlq")
        if wishes.since_ms is not None:
            since = F.timestamp_millis(F.lit(wishes.since_ms))
            broken = broken.where(F.col("written_at") >= since)
        unreadable = broken.count()
    name = f"the table {path}, as the pipeline wrote it last at {change['at']} UTC"
    return Place(wishes.of(rows.select(*columns)), name, unreadable)


def _table(session: SparkSession, path: str) -> DataFrame | None:
    try:
        return session.read.format("delta").load(path)
    except AnalysisException as error:
        if (error.getCondition() or "").startswith(_MISSING):
            return None
        raise


@contextmanager
def kafka(session: SparkSession, plan: Plan, wishes: Wishes) -> Iterator[Place]:
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
    readable = quality.readable(judged.observe(seen, unreadable))
    letters = wishes.of(dead_letters.letters(readable, plan.dlq_reading)).persist()
    try:
        letters.count()
        yield Place(letters, "the topics themselves", seen.get["unreadable"])
    finally:
        letters.unpersist()
