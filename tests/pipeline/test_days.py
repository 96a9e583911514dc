"""Days of the tables are those of UTC, whatever time zone the session has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline import dead_letters as letters_of
from tests.pipeline import test_audit, test_trace
from window_consumer.audit.count import AuditCount, CountTier, encode
from window_consumer.audit.spark import counts as audit
from window_consumer.dlq.spark import table as dead_letters
from window_consumer.dlq.spark.config import Reading
from window_consumer.dlq.spark.schema import DEAD_LETTERS, LETTERS
from window_consumer.spark import maintenance, tables
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.tables import utc_day
from window_consumer.trace.spark import table as trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE = "spark.sql.session.timeZone"
TODAY = date(2026, 1, 2)
MIDNIGHT = datetime.combine(TODAY, datetime.min.time(), UTC)


@pytest.fixture(params=["Pacific/Auckland", "America/Los_Angeles"])
def elsewhere(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """The session, as a user far away has it."""
    before = spark.conf.get(ZONE)
    assert before is not None
    spark.conf.set(ZONE, request.param)
    yield spark
    spark.conf.set(ZONE, before)


@pytest.mark.parametrize("time", [MIDNIGHT, MIDNIGHT + timedelta(days=1, milliseconds=-1)])
def test_rows_are_of_the_day_that_it_was_in_utc(elsewhere: SparkSession, time: datetime) -> None:
    time_ms = round(time.timestamp() * 1000)
    judged = trace.read(test_trace.records(elsewhere, test_trace.batch(time_us=time_ms * 1000)))
    days = {row.day for row in trace.events(tables.readable(judged)).collect()}
    count: dict[str, Any] = {
        "client": "c",
        "incarnation": "i",
        "sequence": 0,
        "tier": CountTier.PRODUCED,
        "count": 1,
        "app": "shop",
        "instance": "host:1",
        "topic": "orders",
        "partition": 0,
        "bucket_ms": time_ms,
        "length_ms": 60_000,
    }
    counts = elsewhere.createDataFrame([(encode([AuditCount(**count)]), time)], test_audit.SHAPE)
    days |= {row.day for row in audit.counts(tables.readable(audit.read(counts))).collect()}
    letter = letters_of.Letter(headers=letters_of.ours(0, failed_at=str(time_ms)))
    reported = dead_letters.judge(letters_of.records(elsewhere, letter))
    found = dead_letters.letters(tables.readable(reported), Reading()).collect()
    assert days | {row.day for row in found} == {TODAY}


def test_a_time_before_1970_has_its_day(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(-1,), (-86_400_000,), (0,)], "time long")
    found = [row.day for row in rows.select(utc_day("time", 1000).alias("day")).collect()]
    assert found == [date(1969, 12, 31), date(1969, 12, 31), date(1970, 1, 1)]


def test_days_end_in_utc_where_old_dead_letters_go(elsewhere: SparkSession, tmp_path: Path) -> None:
    plan = PipelinePlan(kafka={}, directory=str(tmp_path))
    path = LETTERS.make(elsewhere, plan)
    times = {"before": MIDNIGHT - timedelta(seconds=1), "after": MIDNIGHT}
    rows = [
        {**dict.fromkeys(DEAD_LETTERS.names), "id": name, "written_at": time}
        for name, time in times.items()
    ]
    LETTERS.append(elsewhere.createDataFrame(rows, DEAD_LETTERS), path, "job", 1)
    assert maintenance.drop_written(elsewhere, path, TODAY) == 1
    left = elsewhere.read.format("delta").load(path).collect()
    assert [row["id"] for row in left] == ["after"]
