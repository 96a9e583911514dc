"""Offsets whose records are gone, found at the start and while reading, under each policy."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.conftest import ShopOn
from tests.integration.members import Members
from tests.integration.shop import DEADLINE_S, Shop
from tests.logged import fields_of
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.log_events import LogEvent


def delete_before(shop: Shop, offset: int) -> None:
    """Delete records as retention does."""
    admin = AdminClient(shop.plain)
    name = TopicPartition(shop.topic, 0, offset)
    for future in admin.delete_records([name]).values():
        future.result(timeout=30)


def with_a_gap(shop: ShopOn) -> Shop:
    """Ten records are done, the next ten are gone before anybody read them, ten are there."""
    orders = shop(1)
    orders.produce(range(10))
    with orders.running():
        orders.until_committed()
    orders.produce(range(10, 30))
    delete_before(orders, 20)
    orders.calls.clear()
    return orders


def test_a_worker_goes_on_with_the_earliest_record_that_is_left(shop: ShopOn) -> None:
    orders = with_a_gap(shop)
    with orders.running(on_out_of_range="earliest") as running:
        orders.until_committed()
    assert running.workers[0].counters.gone == 10
    assert orders.places() == [(0, offset) for offset in range(20, 30)]
    said = fields_of(orders.log.records, LogEvent.OFFSET_RESET)
    assert (said["offset"], said["rule"]) == (20, "earliest")


def test_a_worker_goes_on_at_the_end_of_the_log(shop: ShopOn) -> None:
    orders = with_a_gap(shop)
    with orders.running(on_out_of_range="latest") as running:
        orders.until_committed()
        orders.produce([30])
        orders.until_called(1)
        orders.until_committed()
    assert running.workers[0].counters.gone == 20
    assert orders.places() == [(0, 30)]
    said = fields_of(orders.log.records, LogEvent.OFFSET_RESET)
    assert (said["offset"], said["rule"]) == (30, "latest")


def test_a_worker_stops_and_commits_nothing_unless_configured_otherwise(shop: ShopOn) -> None:
    orders = with_a_gap(shop)
    with (
        pytest.raises(WorkerStoppedError, match=r"\b10\.\.19\b.*\bon_out_of_range\b"),
        orders.running() as running,
    ):
        assert running.wait(DEADLINE_S)
    assert orders.calls == []
    assert orders.committed() == {0: 10}
    orders.commit_by_hand(20)
    with orders.running():
        orders.until_committed()
    assert orders.places() == [(0, offset) for offset in range(20, 30)]


def test_the_command_ends_with_exit_code_1(shop: ShopOn, tmp_path: Path) -> None:
    orders = with_a_gap(shop)
    bootstrap = orders.client["bootstrap.servers"]
    members = Members(bootstrap, orders.topic, orders.group, tmp_path, {})
    member = members.start()
    try:
        assert member.process.wait(DEADLINE_S) == 1
    finally:
        members.kill_all()
    (failure,) = member.lines_of(LogEvent.WORKER_FAILED, error="WorkerStoppedError")
    for datum in (f"{orders.topic}[0]: ", "10..19", "on_out_of_range", "earliest", "latest"):
        assert datum in failure["message"]
    assert not member.said("Traceback")


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_records_that_go_away_while_reading_are_reported(shop: ShopOn, policy: str) -> None:
    """The client has fetched little ahead, the window is full, the rest of the log goes away."""
    orders, go_on = shop(1), Event()
    orders.behave = lambda _: go_on.wait(DEADLINE_S)
    orders.produce("x" * 1000 for _ in range(3000))
    little = {
        "queued.min.messages": 1,
        "fetch.max.bytes": 1_000_000,
        "fetch.message.max.bytes": 1000,
    }
    with orders.running(
        on_out_of_range=policy, window={"cells": 2, "cell_records": 20}, concurrency=4, kafka=little
    ) as running:
        orders.until_called(4)
        delete_before(orders, 2990)
        go_on.set()
        orders.until_logged(LogEvent.OFFSET_RESET)
        orders.until_committed()
        first = 2990 if policy == "earliest" else 3000
        orders.produce([3000])
        orders.until(lambda: (0, 3000) in orders.places(), "the new record")
        orders.until_committed()
    said = fields_of(orders.log.records, LogEvent.OFFSET_RESET)
    assert (said["offset"], said["rule"]) == (first, policy)
    (lost,) = re.findall(r"\b(\d+)\.\.2989\b", said["message"])
    lost_from = int(lost)
    assert running.workers[0].counters.gone == first - lost_from
    assert orders.places() == [(0, n) for n in [*range(lost_from), *range(first, 3001)]]
