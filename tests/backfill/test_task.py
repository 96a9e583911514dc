"""A task runs a worker over what Spark brings, as the consumer would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from attrs import evolve

from tests.backfill import loops, quoting, shop
from tests.backfill.plans import arrow, plan_of, with_rate, worker_plan
from window_consumer.engine.guards.breaker_state import BreakerRules
from window_consumer.model.errors import UsageError
from window_consumer.model.headers import LostHeaders
from window_consumer.spark.backfill.messages import messages_of
from window_consumer.spark.backfill.task import BackfillTask, WorkerPlan, run

Row = Sequence[Any]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    shop.seen.clear()
    shop.overlaps.clear()
    shop.entered.clear()


def rows_of(plan: WorkerPlan, rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [row for batch in BackfillTask.of(plan)(arrow(rows)) for row in batch.to_pylist()]


def numbered(count: int, value: bytes = b"x", partition: int = 0) -> list[Row]:
    return [(partition, offset, b"k%d" % (offset % 7), value, None) for offset in range(count)]


def test_every_record_is_called_once_and_has_a_row(tmp_path: Path) -> None:
    rows = [*numbered(2500), *numbered(600, partition=3)]
    found = rows_of(worker_plan(tmp_path, "plain"), rows)
    assert sorted((row["partition"], row["offset"]) for row in found) == sorted(
        (row[0], row[1]) for row in rows
    )
    assert {(row["outcome"], row["error"], row["attempts"]) for row in found} == {("done", None, 1)}
    assert min(row["duration_us"] for row in found) >= 500
    assert len(shop.seen) == len(rows)


def test_records_of_a_key_are_called_one_after_another_in_their_order(tmp_path: Path) -> None:
    rows_of(
        worker_plan(
            tmp_path, "plain", "ordering: key, concurrency: 16, retry: {on_failure: overtake}"
        ),
        numbered(2000),
    )
    assert shop.overlaps == []
    for key in {key for key, *_ in shop.seen}:
        offsets = [offset for each, offset, *_ in shop.seen if each == key]
        assert offsets == sorted(offsets)


def test_without_order_records_of_a_key_overlap(tmp_path: Path) -> None:
    """... so that the test of their order can fail."""
    rows_of(worker_plan(tmp_path, "plain", "concurrency: 16"), numbered(2000))
    assert shop.overlaps


def test_a_handler_is_tried_again_after_its_backoff_as_often_as_the_policy_says(
    tmp_path: Path,
) -> None:
    plan = worker_plan(tmp_path, "failing", "retry: {attempts: 3, backoff: 80ms..200ms}")
    found = rows_of(plan, [(0, 5, b"k", b"twice", None), (0, 6, b"k", b"skip", None)])
    assert sorted((row["offset"], row["outcome"], row["attempts"]) for row in found) == [
        (5, "done", 3),
        (6, "skipped", 1),
    ]
    times = [when for _, offset, _, when in shop.seen if offset == 5]
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits[0] >= 0.06  # of 80 ms a random quarter is taken away
    assert waits[1] >= 0.12


def test_hot_keys_that_always_fail_hold_up_no_backfill(tmp_path: Path) -> None:
    """... not for a cool-down of half a minute: at its end their records are all that is left."""
    keys = (
        "ordering: key, retry: {on_failure: overtake, when_spent: drop, backoff: 20ms..50ms},"
        " breaker: {max_hold: 2s}"
    )
    rows: list[Row] = [
        (0, n, b"hot%d" % (n % 3), b"bad", None)
        if n % 250 in {0, 1, 2}
        else (0, n, b"k%d" % (n % 60), b"x", None)
        for n in range(5000)
    ]
    began = perf_counter()
    plan = worker_plan(tmp_path, "failing", keys)
    found = rows_of(evolve(plan, hold=evolve(plan.hold, at_end="leave")), rows)
    assert perf_counter() - began < BreakerRules().cool_down_s
    assert Counter(row["outcome"] for row in found) == {"done": 4940, "dropped": 60}


def test_values_are_typed_as_in_the_consumer(tmp_path: Path) -> None:
    found = rows_of(worker_plan(tmp_path, "typed"), numbered(3, b'{"item": "pen", "pieces": 4}'))
    assert [row["outcome"] for row in found] == ["done"] * 3
    assert {key for key, *_ in shop.seen} == {"pen x 4"}


def test_coroutines_are_awaited(tmp_path: Path) -> None:
    found = rows_of(worker_plan(tmp_path, "coroutine"), numbered(1200))
    assert Counter(row["outcome"] for row in found) == {"done": 1200}
    assert sorted(offset for _, offset, *_ in shop.seen) == list(range(1200))


def test_batch_handlers_get_batches(tmp_path: Path) -> None:
    found = rows_of(worker_plan(tmp_path, "batches"), numbered(1200))
    assert Counter(row["outcome"] for row in found) == {"done": 1200}
    assert sum(int(size) for size, *_ in shop.seen) == 1200
    assert max(int(size) for size, *_ in shop.seen) == 100


def test_the_lifespan_is_entered_and_left_once_a_task(tmp_path: Path) -> None:
    rows_of(worker_plan(tmp_path, "failing"), numbered(10))
    assert shop.entered == ["entered", "left"]


def test_an_asynchronous_lifespan_is_left_on_the_loop_of_its_coroutines(tmp_path: Path) -> None:
    text = "kafka: {bootstrap.servers: 127.0.0.1:1}\nworkers: {charge: {}}"
    found = rows_of(plan_of(loops.app, tmp_path, "charge", text), numbered(20))
    assert [row["outcome"] for row in found] == ["done"] * 20
    assert sorted(loops.seen) == list(range(20))
    assert loops.entered == ["entered", "left"]


def test_a_task_without_records_calls_nothing(tmp_path: Path) -> None:
    assert rows_of(worker_plan(tmp_path, "failing"), []) == []
    assert shop.entered == []


def test_a_task_takes_no_more_records_in_a_second_than_it_may(tmp_path: Path) -> None:
    plan = with_rate(worker_plan(tmp_path, "failing"), 4000.0)
    began = perf_counter()
    list(run(plan, (messages_of(each, "orders") for each in arrow(numbered(2000), size=100))))
    assert perf_counter() - began >= 1900 / 4000


@pytest.mark.parametrize("offsets", [(5, 5), (5, 4)])
def test_records_out_of_their_order_are_refused(tmp_path: Path, offsets: tuple[int, int]) -> None:
    rows = [(1, offset, None, b"", None) for offset in offsets]
    with pytest.raises(UsageError, match=rf"orders\[1\]: offset {offsets[1]} comes after 5"):
        rows_of(worker_plan(tmp_path, "failing"), rows)


def test_records_are_what_the_client_would_deliver() -> None:
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b""}]
    rows = [
        (0, 7, b"k", b"value", headers),
        (0, 9, None, None, None),
        (0, 10, b"", b"", []),
        (2, 3, b"k", b"v", headers[:1]),
    ]
    (name, first), (other, second) = next(iter([list(messages_of(next(arrow(rows)), "orders"))]))
    assert (name, other) == (("orders", 0), ("orders", 2))
    assert [
        (m.topic(), m.partition(), m.offset(), m.key(), m.value(), len(m), m.timestamp())
        for m in first
    ] == [
        ("orders", 0, 7, b"k", b"value", 5, (1, 1_700_000_000_000)),
        ("orders", 0, 9, None, None, 0, (1, 1_700_000_000_000)),
        ("orders", 0, 10, b"", b"", 0, (1, 1_700_000_000_000)),
    ]
    assert [m.headers() for m in first] == [[("a", b"1"), ("a", None), ("b", b"")], None, None]
    assert [(m.offset(), m.headers()) for m in second] == [(3, [("a", b"1")])]


def test_headers_that_nobody_can_read_are_lost() -> None:
    """Java, and so Spark, puts a character of its own where a name is not UTF-8."""
    broken = [("fine", b"1"), ("\N{REPLACEMENT CHARACTER}name", b"2")]
    rows = [(0, 1, b"k", b"x", broken), (0, 2, b"k", b"x", [("fine", b"1")])]
    ((_, (first, second)),) = messages_of(next(arrow(rows)), "orders")
    assert type(first.headers()) is LostHeaders
    assert second.headers() == [("fine", b"1")]


def test_what_mask_hides_is_in_no_result_and_no_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    retry = "{attempts: 1, when_spent: drop}"
    text = (
        f"kafka: {{bootstrap.servers: 127.0.0.1:1}}\nworkers: {{charge: {{retry: {retry}}}}}\n"
        "mask: [{topics: [orders], fields: [card]}]"
    )
    plan = plan_of(quoting.app, tmp_path, "charge", text)
    (row,) = rows_of(plan, numbered(1, b'{"card": "4975123412341234"}'))
    assert (row["outcome"], row["error"]) == ("dropped", "KeyError: '***'")
    assert "KeyError: '***'" in caplog.text
    assert "4975123412341234" not in caplog.text
