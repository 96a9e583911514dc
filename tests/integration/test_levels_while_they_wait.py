"""What may happen while records wait in a retry level: owners change, and so does the ladder."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.applications import SHOP
from tests.commands import Commands
from tests.golden_texts import Golden
from tests.integration.conftest import ShopOn, protocol_settings
from tests.integration.retry_topics import RetryTopics, header
from tests.integration.shop import DEADLINE_S, Shop
from tests.integration.test_retry_levels import (
    assert_on_time,
    fails,
    fails_until,
    ladder,
    until_reading,
)
from tests.logged import lines_of
from window_consumer import Record
from window_consumer.kafka.embedded import NewRecord
from window_consumer.model import headers as names
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.guarantees import NoDuplicates

pytestmark = pytest.mark.calm


def until_waiting(shop: Shop, topics: RetryTopics, delay: str, count: int) -> None:
    """Wait until so many copies lie in a level and the source is committed."""
    shop.until(lambda: sum(topics.ends(topics.name(delay)).values()) == count, "copies wait")
    shop.until_committed()


def another_member(shop: Shop, directory: Path) -> Shop:
    """Return a second member of the group; both write one history."""
    directory.mkdir()
    return Shop(
        shop.client,
        shop.topic,
        shop.group,
        directory,
        shop.behave,
        produced=shop.produced,
        events=shop.events,
    )


def test_copies_that_wait_are_called_once_and_in_time_by_whoever_owns_them_then(
    shop: ShopOn, protocol: str, tmp_path: Path
) -> None:
    """One member leaves and another one joins while they wait."""
    first = shop(4)
    topics = RetryTopics.of(first, "12s")
    first.behave = fails_until(2)
    leaving, joining = (another_member(first, tmp_path / name) for name in ("leaving", "joining"))
    settings = {"kafka": protocol_settings(protocol), "ordering": "key", **ladder("12s")}
    with first.running(**settings):
        until_reading(first, topics)
        with leaving.running(**settings):
            leaving.until_logged(LogEvent.PARTITIONS_ASSIGNED, partitions=4)
            for partition in range(4):
                first.produce(range(25), keys=25, partition=partition)
            until_waiting(first, topics, "12s", 100)
        with joining.running(**settings):
            joining.until_logged(LogEvent.PARTITIONS_ASSIGNED, partitions=4)
            first.until(topics.are_drained, "source and levels are committed")
    in_level = {
        shop_name: [call.place for call in each.calls if call.topic == topics.name("12s")]
        for shop_name, each in (("first", first), ("leaving", leaving), ("joining", joining))
    }
    assert in_level["leaving"] == []
    assert len(in_level["first"]) == len(in_level["joining"]) == 50
    assert len({*in_level["first"], *in_level["joining"]}) == 100
    assert_on_time(first, topics.name("12s"))
    assert_on_time(joining, topics.name("12s"))
    assert topics.violations(first, NoDuplicates()) == []


# ---- the ladder changes


def findings(commands: Commands, shop: Shop, **worker: Any) -> Any:
    """Return what ``check --connect`` says of the cluster."""
    commands.application(SHOP)
    worker = {"topics": [shop.topic], "group": shop.group, **worker}
    commands.configure({"kafka": dict(shop.client), "workers": {"charge": worker}})
    ended = commands.run("check", "shop:app", "--connect", "--json")
    assert ended.code == 0, ended.err
    return ended.json["workers"]["charge"]["cluster"]


def test_a_level_that_was_taken_out_is_read_until_it_is_drained(
    shop: ShopOn, commands: Commands
) -> None:
    orders = shop(2)
    topics = RetryTopics.of(orders, "300ms", "3s", "3500ms")
    kafka = protocol_settings("classic")
    orders.behave = fails
    with orders.running(kafka=kafka, **ladder("3s")):
        until_reading(orders, RetryTopics.of(orders, "3s"))
        orders.produce(range(10), keys=10)
        until_waiting(orders, topics, "3s", 10)
    assert [call.attempt for call in orders.calls] == [1] * 10
    leftover, now = topics.name("3s"), ladder("300ms", "3500ms")
    found = findings(commands, orders, retry=now["retry"])
    assert found["leftovers"] == {leftover: 10}
    assert found["retry_topics"] == {orders.topic: [topics.name("300ms"), topics.name("3500ms")]}

    orders.behave = fails_until(3)
    orders.log.records.clear()
    with orders.running(kafka=kafka, **now):
        orders.until_logged(LogEvent.PARTITIONS_ASSIGNED, partitions=8)
        orders.until_called(30)
        orders.until_logged(LogEvent.TOPICS_CHANGED)
        orders.until_logged(LogEvent.PARTITIONS_ASSIGNED, partitions=6)
        orders.until(topics.are_drained, "source and levels are committed")
    assert [call.topic for call in orders.calls[10:]].count(leftover) == 10
    assert sum(call.topic == topics.name("3500ms") for call in orders.calls) == 10
    assert topics.copies("300ms") == topics.dead_letters() == []
    assert findings(commands, orders, retry=now["retry"])["leftovers"] == {leftover: 0}
    assert topics.violations(orders, NoDuplicates()) == []


# ---- records that are put back


def put_back(orders: Shop, value: bytes, key: bytes, offset: int) -> NewRecord:
    """Return what a redrive writes of a record that has failed three times."""
    return NewRecord(
        value,
        key,
        [
            ("own", b"1"),
            (names.ID, b"%d" % offset),
            (names.ORIGINAL_TOPIC, orders.topic.encode()),
            (names.ORIGINAL_PARTITION, b"0"),
            (names.ORIGINAL_OFFSET, b"%d" % offset),
            (names.FIRST_FAILURE, b"1600000000000"),
            (names.ATTEMPTS, b"3"),
            (names.REDRIVES, b"1"),
        ],
        0,
    )


def test_records_that_are_put_back_climb_again_beside_their_lanes(
    shop: ShopOn, golden: Golden
) -> None:
    orders, go_on = shop(1), Event()
    topics = RetryTopics.of(orders, "300ms", "500ms", "now")

    def behave(record: Record) -> None:
        if record.value == b"slow":
            go_on.wait(DEADLINE_S)
        elif record.attempt < 6:
            fails(record)

    orders.behave = behave
    kafka = protocol_settings("consumer")
    with orders.running(kafka=kafka, ordering="key", **ladder("300ms", "500ms")):
        until_reading(orders, RetryTopics.of(orders, "300ms", "500ms"))
        orders.create_topic(topics.name("now"))
        until_reading(orders, topics)
        orders.write([NewRecord(b"slow", b"held")])
        orders.until_called(1)
        again = [put_back(orders, b"behind", b"held", 7), put_back(orders, b"free", b"free", 8)]
        orders.write(again, topics.name("now"))
        orders.until_called(4)
        assert {call.value for call in orders.calls} == {b"slow", b"free"}
        go_on.set()
        orders.until_called(7)
        orders.until(topics.are_drained, "source and levels are committed")
    place = {"topic": topics.name("now"), "partition": 0, "offset": 1}
    first, *_ = lines_of(orders.log.records, LogEvent.CALL_FAILED, **place)
    golden(first.getMessage().partition(";")[0], topic=place["topic"])
    for value in (b"behind", b"free"):
        calls = [call for call in orders.calls if call.value == value]
        assert [call.attempt for call in calls] == [4, 5, 6]
        ladder_topics = [topics.name(delay) for delay in ("now", "300ms", "500ms")]
        assert [call.topic for call in calls] == ladder_topics
        for call in calls:
            assert header(call.headers, names.FIRST_FAILURE) == b"1600000000000"
            assert header(call.headers, names.REDRIVES) == b"1"
            assert header(call.headers, "own") == b"1"
    assert_on_time(orders, topics.name("300ms"), topics.name("500ms"))
