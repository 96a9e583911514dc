"""A snapshot of a table has the rows that the table has, however it is read."""

from __future__ import annotations

import time
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as T  # noqa: N812 - its usual name

from window_consumer.spark import snapshots
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = Table(
    "days",
    T.StructType([T.StructField("text", T.StringType()), T.StructField("day", T.DateType())]),
    partitioned_by=("day",),
)
LATER = Table(
    "days",
    T.StructType([*DAYS.schema, T.StructField("more", T.LongType())]),
    partitioned_by=("day",),
)
COARSE_MS = 1000
"""The times of files are not those of clocks to the millisecond."""

ROWS = [("a", date(2026, 1, 10)), ("b", date(2026, 1, 11)), ("c", None)]


def write(spark: SparkSession, plan: PipelinePlan) -> str:
    path = DAYS.make(spark, plan)
    for batch, row in enumerate(ROWS):
        DAYS.append(spark.createDataFrame([row], DAYS.schema), path, "test", batch)
    return path


@pytest.mark.parametrize("name", ["lake", "a lake with 20%", "lake[1]"])
def test_a_snapshot_has_the_rows_of_the_table(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """... and not those of files that its log has given up."""
    plan = PipelinePlan(kafka={}, directory=str(tmp_path / name))
    began_ms = time.time() * 1000
    path = write(spark, plan)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE text = 'b'")  # noqa: S608 - a table of this test
    taken = snapshots.of(spark, plan.table(LATER.name), LATER.schema)
    assert taken is not None
    assert taken.rows.columns == ["text", "day", "more"], "an older version lacks a column"
    found = {tuple(row) for row in taken.rows.collect()}
    assert found == {("a", date(2026, 1, 10), None), ("c", None, None)}
    assert taken.changed_ms > began_ms - COARSE_MS


@pytest.mark.parametrize("name", ["lake", "lake[1]"])
def test_only_a_part_of_a_table_may_be_asked_for(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    plan = PipelinePlan(kafka={}, directory=str(tmp_path / name))
    write(spark, plan)
    part = snapshots.of(spark, plan.table(DAYS.name), DAYS.schema, {"day": "2026-01-11"})
    none = snapshots.of(spark, plan.table(DAYS.name), DAYS.schema, {"day": "2026-01-12"})
    assert part is not None
    assert none is not None
    assert [row["text"] for row in part.rows.collect()] == ["b"]
    assert none.rows.isEmpty()
    assert not part.is_empty
    assert none.is_empty == (name == "lake"), "others are not known to be without a look"


@pytest.mark.parametrize("name", ["lake", "lake[1]"])
def test_of_a_table_that_was_not_made_there_is_none(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    plan = PipelinePlan(kafka={}, directory=str(tmp_path / name))
    assert snapshots.of(spark, plan.table(DAYS.name), DAYS.schema) is None
    DAYS.make(spark, plan)
    made = snapshots.of(spark, plan.table(DAYS.name), DAYS.schema)
    assert made is not None
    assert made.rows.isEmpty()
