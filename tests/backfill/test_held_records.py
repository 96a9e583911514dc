"""What becomes of records that fail while nothing succeeds any more: a task has to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from time import sleep

import pyarrow as pa
import pytest
from attrs import evolve

from tests.backfill import shop
from tests.backfill.plans import arrow, worker_plan
from window_consumer.model.record import TopicPartition
from window_consumer.spark.backfill.held_records import (
    MAX_HOLD_S,
    AtEnd,
    HeldRecordsError,
    HoldRules,
    named,
)
from window_consumer.spark.backfill.task import BackfillTask, WorkerPlan

RETRY = "when_spent: drop, backoff: 1ms..2ms, on_failure: overtake"
HOLD_S = 0.5


@pytest.fixture(autouse=True)
def _fresh() -> None:
    shop.seen.clear()
    shop.overlaps.clear()
    shop.entered.clear()


def plan_of(
    directory: Path, at_end: AtEnd = "fail", attempts: int = 2, more: str = ""
) -> WorkerPlan:
    keys = f"retry: {{attempts: {attempts}, {RETRY}}}{more}"
    return evolve(worker_plan(directory, "failing", keys), hold=HoldRules(HOLD_S, at_end))


def outcomes(plan: WorkerPlan, batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    found = [row for batch in BackfillTask.of(plan)(batches) for row in batch.to_pylist()]
    return Counter(row["outcome"] for row in found)


def brought(values: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    return arrow([(0, offset, b"k%d" % offset, value, None) for offset, value in enumerate(values)])


def good_then_bad(good: int, bad: int) -> Iterator[pa.RecordBatch]:
    return brought([b"x"] * good + [b"bad"] * bad)


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_task_whose_last_200_records_fail_ends_with_an_error_that_names_them(
    tmp_path: Path, attempts: int
) -> None:
    with pytest.raises(HeldRecordsError) as ended:
        outcomes(plan_of(tmp_path, attempts=attempts), good_then_bad(1000, 200))
    text, without_error = str(ended.value), ended.value.without_error
    assert "--at-end leave" in text
    assert "ValueError: unknown order 1" in text
    assert "ValueError" not in without_error
    for each in (text, without_error):
        assert "orders[0]@" in each
        assert "1199" in each


def test_many_leave_where_that_is_wanted(tmp_path: Path) -> None:
    found = outcomes(plan_of(tmp_path, "leave"), good_then_bad(1000, 200))
    assert found == {"done": 1000, "dropped": 200}


@pytest.mark.parametrize("attempts", [1, 2])
def test_up_to_twenty_leave(tmp_path: Path, attempts: int) -> None:
    found = outcomes(plan_of(tmp_path, attempts=attempts), good_then_bad(1000, 20))
    assert found == {"done": 1000, "dropped": 20}


def test_records_that_have_left_are_counted_with_those_that_are_held(tmp_path: Path) -> None:
    """... as the first twenty leave before it is known that many fail."""
    with pytest.raises(HeldRecordsError):
        outcomes(plan_of(tmp_path, attempts=1), good_then_bad(1000, 32))


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_bad_records_that_fill_the_windows_end_the_task_in_the_middle(
    tmp_path: Path, ordering: str
) -> None:
    small = f", window: {{cells: 2, cell_records: 50}}, ordering: {ordering}"
    values = [b"x"] * 200 + [b"bad"] * 400 + [b"x"] * 20_000
    with pytest.raises(HeldRecordsError, match=r"orders\[0\]@"):
        outcomes(plan_of(tmp_path, more=small), brought(values))
    found = outcomes(plan_of(tmp_path, "leave", more=small), brought(values))
    assert found == {"done": 20_200, "dropped": 400}


def test_the_hold_begins_when_nothing_more_can_come(tmp_path: Path) -> None:
    """... however long Spark takes to bring the rest."""
    there, hold_s = tmp_path / "there again", 3.0
    plan = worker_plan(tmp_path, "outage", f"retry: {{attempts: 2, {RETRY}}}")

    def coming() -> Iterator[pa.RecordBatch]:
        for batch in brought([str(there).encode()] * 400):
            yield batch.slice(0, 30)
            sleep(hold_s + 0.5)
            there.touch()
            yield batch.slice(30)

    assert outcomes(evolve(plan, hold=HoldRules(hold_s)), coming()) == {"done": 400}


def test_an_outage_that_ends_in_time_costs_nothing(tmp_path: Path) -> None:
    there = tmp_path / "there again"
    plan = worker_plan(tmp_path, "outage", f"retry: {{attempts: 2, {RETRY}}}")
    plan = evolve(plan, hold=HoldRules(60.0, "fail"))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(outcomes, plan, brought([str(there).encode()] * 300))
        sleep(4 * HOLD_S)
        there.touch()
        assert running.result() == {"done": 300}


def test_max_hold_is_short_in_a_backfill_unless_it_is_configured(tmp_path: Path) -> None:
    assert worker_plan(tmp_path, "plain").hold == HoldRules(MAX_HOLD_S, "fail")
    for text, seconds in {"90s": 90.0, "10m": 600.0, "never": inf}.items():
        plan = worker_plan(tmp_path, "plain", f"breaker: {{max_hold: {text}}}")
        assert plan.hold.max_hold_s == seconds
        assert plan.engine.breaker.max_hold_s == inf


def test_runs_of_offsets_are_named_in_their_order() -> None:
    records = [(TopicPartition("orders", n % 2), n // 2) for n in (2, 0, 4, 8, 1)]
    assert named(dict.fromkeys(records)) == "orders[0]@0..2, orders[0]@4, orders[1]@0"
    many = [(TopicPartition("orders", 0), 2 * n) for n in range(25)]
    assert named(dict.fromkeys(many)).endswith("orders[0]@38 and 5 more")
