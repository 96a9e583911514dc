"""Handlers that hang, and outages of what handlers need, on the embedded broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.shop import DEADLINE_S, Shop
from window_consumer import Record
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.log_events import LogEvent

STALL: dict[str, Any] = {"after": "2s", "max_abandoned": 1}


@pytest.fixture
def orders(embedded: EmbeddedBroker, tmp_path: Path) -> Shop:
    embedded.create_topic("orders", 1)
    orders = Shop(embedded.client_settings(), "orders", "shop", tmp_path)
    embedded.create_topic(orders.dlq, 1)
    return orders


class Bank:
    """What the handler needs: it can hang, and it can be down."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.is_up = True
        self.cancelled: list[bool] = []

    def pay(self, record: Record) -> None:
        if record.value == b"hangs":
            assert self.answers.wait(DEADLINE_S)
            self.cancelled.append(record.cancelled)
        elif not self.is_up:
            raise ConnectionError("the bank is down")


@pytest.fixture
def bank(orders: Shop) -> Iterator[Bank]:
    bank = Bank()
    orders.behave = bank.pay
    yield bank
    bank.answers.set()


def test_a_hanging_call_is_abandoned_and_its_dead_letter_says_where_it_stood(
    orders: Shop, bank: Bank
) -> None:
    orders.write([NewRecord(b"1"), NewRecord(b"hangs"), NewRecord(b"2")])
    with orders.running(concurrency=1, stall=STALL) as running:
        orders.until_committed()
        assert running.counters["work"].abandoned == 1
        bank.answers.set()
        orders.until_logged(LogEvent.CALL_RETURNED, topic="orders", partition=0, offset=1)
        assert running.counters["work"].late == 1
    (copy,) = orders.dead_letters()
    headers = dict(copy.headers())
    assert (copy.value(), headers["wc-reason"]) == (b"hangs", b"STALLED")
    stack = headers["wc-error-stack"].decode()
    assert "in pay" in stack
    assert "self.answers.wait(DEADLINE_S)" in stack
    assert "thread_pool.py" not in stack
    (line,) = orders.log.of(LogEvent.CALL_STALLED)
    assert "in pay" in line
    assert bank.cancelled == [True]


def test_with_order_the_lane_waits_for_the_thread(orders: Shop, bank: Bank) -> None:
    records = [(b"hangs", b"a"), (b"1", b"a"), (b"2", b"b")]
    orders.write(NewRecord(value, key) for value, key in records)
    with orders.running(
        concurrency=2, ordering="key", retry={"on_failure": "overtake"}, stall=STALL
    ):
        orders.until_open(1)
        assert orders.places() == [(0, 0), (0, 2)]
        bank.answers.set()
        orders.until_committed()
    assert [copy.value() for copy in orders.dead_letters()] == [b"hangs"]


def test_too_many_hanging_calls_stop_the_worker(orders: Shop, bank: Bank) -> None:
    assert not bank.answers.is_set()
    orders.write([NewRecord(b"hangs"), NewRecord(b"hangs")])
    stopped = r"\b2 s\b.*\bstall\.max_abandoned .*\b1\b"
    with (
        pytest.raises(WorkerStoppedError, match=stopped),
        orders.running(concurrency=1, stall=STALL, stop_timeout="100ms") as running,
    ):
        assert running.wait(DEADLINE_S)


def test_a_hanging_call_is_only_reported_where_that_is_wanted(orders: Shop, bank: Bank) -> None:
    orders.write([NewRecord(b"hangs"), NewRecord(b"1")])
    with orders.running(concurrency=2, stall={**STALL, "action": "report"}):
        orders.until_logged(LogEvent.CALL_STALLED, ended=False, abandoned=False)
        bank.answers.set()
        orders.until_committed()
    assert orders.dead_letters() == []
    assert bank.cancelled == [False]


def test_an_outage_moves_next_to_nothing_and_the_worker_goes_on_by_itself(
    orders: Shop, bank: Bank
) -> None:
    bank.is_up = False
    orders.produce(range(500))
    with orders.running(
        retry={"attempts": 1}, breaker={"cool_down": "500ms"}, concurrency=4
    ) as running:
        orders.until_logged(LogEvent.BREAKER_CHANGED, state=BreakerState.OPEN)
        orders.produce(range(500, 1000))
        orders.until(lambda: any(call.offset >= 500 for call in orders.calls), "samples are new")
        bank.is_up = True
        orders.until_logged(LogEvent.BREAKER_CHANGED, state=BreakerState.CLOSED)
        orders.until_committed()
        counters = running.counters["work"]
        assert counters.dead_lettered <= 20
        assert counters.processed + counters.dead_lettered == 1000
        assert counters.breaker_opened == 1
