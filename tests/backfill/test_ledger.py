"""What is recorded of backfills stays right where two drivers run the same one."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from tests.golden_texts import Golden
from tests.pipeline.gates import DEADLINE_S, held_up
from tests.waiting import wait_until
from window_consumer.model.errors import RunError
from window_consumer.model.offset_ranges import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from window_consumer.spark.backfill.chunk_log import BackfillIdentity, BackfillLedger
    from window_consumer.spark.backfill.ranges import Spans


def ledger(spark: SparkSession, directory: Path) -> BackfillLedger:
    """Return the ledger of another driver: one with a session of its own."""
    from window_consumer.spark.backfill.chunk_log import BackfillLedger  # noqa: PLC0415 - it needs Spark

    return BackfillLedger(spark.newSession(), str(directory))


def about(name: str = "one") -> BackfillIdentity:
    from window_consumer.spark.backfill.chunk_log import BackfillIdentity  # noqa: PLC0415 - it needs Spark

    return BackfillIdentity(name, "charge", "shop", "orders", None, "all")


def rows(spark: SparkSession, first: int, end: int) -> DataFrame:
    """Return what a job says of these records of partition 0: the odd ones have failed."""
    return spark.range(first, end, numPartitions=1).selectExpr(
        "'orders' AS topic",
        "0 AS partition",
        "id AS offset",
        "id % 2 = 0 AS ok",
        "IF(id % 2 = 0, 'done', 'dead_lettered') AS outcome",
        "CAST(NULL AS string) AS reason",
        "CAST(NULL AS string) AS error",
        "1 AS attempts",
        "5L AS duration_us",
    )


def test_a_chunk_that_another_driver_has_recorded_is_refused(
    spark: SparkSession, tmp_path: Path, golden: Golden
) -> None:
    """... and does not count as done: chunks of the two may hold other offsets."""
    one, other = ledger(spark, tmp_path), ledger(spark, tmp_path)
    assert one.record(rows(spark, 0, 5), "one", 0) == 2
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(other.record, rows(spark, 0, 9), "one", 0)
        with golden.raises(RunError):
            refused.result(DEADLINE_S)
    done = other.done("one")
    assert (done.ends, done.chunk, done.records, done.failed) == ({0: 5}, 0, 5, 2)


def test_of_two_drivers_that_run_a_chunk_at_once_one_records_it(
    spark: SparkSession, tmp_path: Path, golden: Golden
) -> None:
    one, other = ledger(spark, tmp_path), ledger(spark, tmp_path)
    running, gate = tmp_path / "running", tmp_path / "gate"
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(one.record, held_up(rows(spark, 0, 9), running, gate), "one", 0)
        try:
            wait_until(running.exists, DEADLINE_S, "the first one runs its chunk")
            assert other.record(rows(spark, 0, 5), "one", 0) == 2
        finally:
            gate.touch()
        with golden.raises(RunError):
            slow.result(DEADLINE_S)
    assert other.done("one").ends == {0: 5}


def test_a_driver_that_begins_what_another_has_just_begun_runs_that_ones_range(
    spark: SparkSession, tmp_path: Path
) -> None:
    from window_consumer.spark.backfill.chunk_log import BackfillLedger  # noqa: PLC0415 - it needs Spark

    other = ledger(spark, tmp_path)

    class Later(BackfillLedger):
        """Writes its range when another one has, after it had looked for one."""

        def _write(self, about: BackfillIdentity, spans: Spans) -> None:
            other.begin(about, {0: Span(0, 7)})
            super()._write(about, spans)
            raise RuntimeError("[DELTA_CONCURRENT_TRANSACTION] as Delta says, if at once")

    later = Later(spark, str(tmp_path))
    assert later.begin(about(), {0: Span(0, 8)}) == {0: Span(0, 7)}
    assert other.begin(about(), {0: Span(0, 9)}) == {0: Span(0, 7)}


def test_a_table_that_somebody_else_is_making_is_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its log is a directory before there is a version in it."""
    ledger(spark, tmp_path / "made")
    versions = tmp_path / "made" / "tables" / "results" / "_delta_log"
    log = tmp_path / "half made" / "tables" / "results" / "_delta_log"
    log.mkdir(parents=True)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(ledger, spark, tmp_path / "half made")
        wait([made], timeout=2)  # it looks at what is half made, and is not ended by that
        shutil.copy(versions / f"{0:020}.json", log / "unfinished")
        (log / "unfinished").rename(log / f"{0:020}.json")
        assert made.result(DEADLINE_S).done("one").records == 0


def test_a_chunk_without_a_record_does_not_stand_in_the_way_of_the_next_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its offsets are holes of the log: markers of transactions, or what compaction took."""
    first = ledger(spark, tmp_path)
    assert first.record(rows(spark, 0, 5), "one", 0) == 2
    assert first.record(rows(spark, 0, 0), "one", 1) == 0
    later = ledger(spark, tmp_path)
    done = later.done("one")
    assert (done.chunk, done.ends) == (1, {0: 5})
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(later.record, rows(spark, 5, 9), "one", 2).result(DEADLINE_S) == 2
    assert later.done("one").records == 9
    assert later.done("two").chunk == -1
