"""What is recorded of backfills stays right where two drivers run the same one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.integration.members import wait_until
from tests.pipeline.gates import PATIENCE_S, held_up
from window_consumer.kafka.topic_reader import Span
from window_consumer.model.errors import RunError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from window_consumer.backfill.ledger import About, Ledger

T = TypeVar("T")
ROUNDS = 2


def ledger(spark: SparkSession, directory: Path) -> Ledger:
    """Return the ledger of another driver: one with a session of its own."""
    from window_consumer.backfill.ledger import Ledger  # noqa: PLC0415 - it needs Spark

    return Ledger(spark.newSession(), str(directory))


def about(name: str = "one") -> About:
    from window_consumer.backfill.ledger import About  # noqa: PLC0415 - it needs Spark

    return About(name, "charge", "shop", "orders", None, "all")


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


def both(one: Callable[[], T], other: Callable[[], T]) -> tuple[T, T]:
    """Return what two threads get that do these at the same time."""
    barrier = Barrier(2)

    def at_once(action: Callable[[], T]) -> T:
        barrier.wait(PATIENCE_S)
        return action()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(at_once, one), pool.submit(at_once, other)
        return first.result(PATIENCE_S), second.result(PATIENCE_S)


def test_a_chunk_that_another_driver_has_recorded_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """... and does not count as done: chunks of the two may hold other offsets."""
    one, other = ledger(spark, tmp_path), ledger(spark, tmp_path)
    assert one.record(rows(spark, 0, 5), "one", 0) == 2
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(other.record, rows(spark, 0, 9), "one", 0)
        with pytest.raises(RunError, match="somebody else runs the backfill one, too"):
            refused.result(PATIENCE_S)
    done = other.done("one")
    assert (done.ends, done.chunk, done.records, done.failed) == ({0: 5}, 0, 5, 2)


def test_of_two_drivers_that_run_a_chunk_at_once_one_records_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    one, other = ledger(spark, tmp_path), ledger(spark, tmp_path)
    running, gate = tmp_path / "running", tmp_path / "gate"
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(one.record, held_up(rows(spark, 0, 9), running, gate), "one", 0)
        try:
            wait_until(running.exists, PATIENCE_S, "the first one runs its chunk")
            assert other.record(rows(spark, 0, 5), "one", 0) == 2
        finally:
            gate.touch()
        with pytest.raises(RunError, match="somebody else runs the backfill one, too"):
            slow.result(PATIENCE_S)
    assert other.done("one").ends == {0: 5}


def test_two_drivers_may_begin_the_same_backfill_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """... in a directory where nothing is: both run the range of which was faster."""
    for number in range(ROUNDS):
        directory = tmp_path / f"results-{number}"
        drivers = both(
            partial(ledger, spark, directory),
            partial(ledger, spark, directory),
        )
        spans = both(
            partial(drivers[0].begin, about(), {0: Span(0, 7)}),
            partial(drivers[1].begin, about(), {0: Span(0, 8)}),
        )
        assert spans[0] == spans[1]
        assert spans[0] in ({0: Span(0, 7)}, {0: Span(0, 8)})


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
        assert pool.submit(later.record, rows(spark, 5, 9), "one", 2).result(PATIENCE_S) == 2
    assert later.done("one").records == 9
    assert later.done("two").chunk == -1
