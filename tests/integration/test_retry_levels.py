"""Retry levels on a real Kafka: a record climbs, waits until it is due, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import ShopOn, protocol_settings
from tests.integration.retry_topics import CALM, RetryTopics, header, lateness_ms
from tests.integration.shop import Shop
from window_consumer import Record
from window_consumer.kafka.embedded import NewRecord
from window_consumer.model import headers as names
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.guarantees import NoDuplicates, OneAtATimePerKey

LATEST_MS = 1000
"""A copy is called at most so long after it is due, where a slot is free."""


def ladder(*levels: str, **more: Any) -> dict[str, Any]:
    """Return a worker's settings: one call in each topic, and no breaker."""
    retry = {"attempts": 1, "levels": list(levels), "on_failure": "overtake", **more}
    return {"retry": retry, "breaker": dict(CALM)}


def fails(record: Record) -> None:
    raise ValueError(f"not at attempt {record.attempt}")


def fails_until(attempt: int) -> Callable[[Record], None]:
    """Fail at each attempt before this one."""

    def behave(record: Record) -> None:
        if record.attempt < attempt:
            fails(record)

    return behave


def until_reading(shop: Shop, topics: RetryTopics) -> None:
    """Wait until the group has dealt out all levels: it hears late of topics that are new."""
    partitions = len(shop.ends()) * (1 + len(topics.delays))
    shop.until_logged(LogEvent.PARTITIONS_ASSIGNED, partitions=partitions)


def assert_on_time(shop: Shop, *topics: str) -> None:
    late = [lateness_ms(call) for call in shop.calls if call.topic in topics]
    assert late
    assert min(late) >= 0
    assert max(late) <= LATEST_MS + shop.stalls.seconds * 1000


# ---- up the ladder


@pytest.mark.calm
def test_a_record_climbs_all_levels_in_time_and_ends_among_the_dead_letters(
    shop: ShopOn, protocol: str
) -> None:
    orders = shop(3)
    topics = RetryTopics.of(orders, "500ms", "1s")
    orders.behave = fails
    own = [("trace", b"\x00\xff"), ("trace", None), ("empty", b"")]
    records = [NewRecord(b"v%d" % n, b"k%d" % n, own, n % 3) for n in range(6)]
    kafka = protocol_settings(protocol)
    with orders.running(kafka=kafka, ordering="key", **ladder("500ms", "1s")):
        until_reading(orders, topics)
        orders.write(records)
        orders.until_called(18)
        orders.until(topics.are_drained, "source and levels are committed")
    assert_on_time(orders, *topics.names)
    for record in records:
        calls = [call for call in orders.calls if call.value == record.value]
        assert [call.attempt for call in calls] == [1, 2, 3]
        assert [call.topic for call in calls] == [orders.topic, *topics.names]
        assert {call.partition for call in calls} == {record.partition}
        assert {call.key for call in calls} == {record.key}
        for call in calls:
            assert [each for each in call.headers if not each[0].startswith("wc-")] == own
        place = f"{orders.topic}/{calls[0].partition}/{calls[0].offset}".encode()
        first_failures = {header(call.headers, names.FIRST_FAILURE) for call in calls[1:]}
        assert len(first_failures) == 1
        assert None not in first_failures
        assert {header(call.headers, names.ID) for call in calls[1:]} == {place}
        assert [header(call.headers, names.LEVEL) for call in calls] == [None, b"500ms", b"1s"]
    dead = topics.dead_letters()
    assert len(dead) == len(records)
    assert {copy.value() for copy in dead} == {record.value for record in records}
    for copy in dead:
        assert header(copy.headers(), names.ATTEMPTS) == b"3"
        assert header(copy.headers(), names.REASON) == b"RETRIES_EXHAUSTED"
        assert [each for each in copy.headers() if not each[0].startswith("wc-")] == own
        assert copy.partition() == int(header(copy.headers(), names.ORIGINAL_PARTITION) or b"")
    assert topics.violations(orders, OneAtATimePerKey()) == []


def test_copies_keep_their_partition_in_a_retry_topic_that_is_wider_than_its_source(
    shop: ShopOn,
) -> None:
    """Strays, which were written by key, are called in the partition of their source."""
    orders = shop(1)
    topics = RetryTopics.of(orders, "300ms")
    (level,) = topics.names
    orders.create_topic(level, 4)
    orders.produce(range(40), keys=5)
    origin = [
        (names.ORIGINAL_TOPIC, orders.topic.encode()),
        (names.ORIGINAL_PARTITION, b"0"),
        (names.ATTEMPTS, b"1"),
    ]
    strays = [
        NewRecord(b"%d" % n, b"k%d" % (n % 5), [*origin, (names.ORIGINAL_OFFSET, b"%d" % n)], 3)
        for n in range(20)
    ]
    orders.write(strays, level)
    del orders.produced[40:]  # they stand for records of the source

    def behave(record: Record) -> None:
        time.sleep(0.01)
        fails_until(2)(record)

    orders.behave = behave
    with orders.running(ordering="key", **ladder("300ms")):
        orders.until_called(40 + 40 + 20)
        orders.until(topics.are_drained, "source and level are committed")
    assert {call.partition for call in orders.calls} == {0}
    assert len(orders.calls) == 100
    assert orders.log.containing(f"{level} has 4 partitions and {orders.topic} 1")
    assert topics.violations(orders, OneAtATimePerKey()) == []


def test_a_record_that_succeeds_in_a_level_goes_no_further(shop: ShopOn) -> None:
    orders = shop(1)
    topics = RetryTopics.of(orders, "300ms", "1s")
    orders.behave = fails_until(4)
    settings = ladder("300ms", "1s", attempts=2, backoff="10ms..20ms", attempts_per_level=2)
    orders.produce(range(5), keys=5)
    with orders.running(**settings):
        orders.until_called(20)
        orders.until(topics.are_drained, "source and levels are committed")
    assert sorted(call.attempt for call in orders.calls) == sorted([1, 2, 3, 4] * 5)
    assert topics.copies("1s") == topics.dead_letters() == []
    assert topics.violations(orders, NoDuplicates()) == []


@pytest.mark.calm
def test_a_backlog_of_the_source_does_not_hold_a_copy_back(shop: ShopOn) -> None:
    """40,000 records of 5 ms for two slots: the client has most of them before the first copy."""
    orders = shop(1)
    topics = RetryTopics.of(orders, "1s")
    one_fails = fails_until(2)

    def behave(record: Record) -> None:
        if record.value == b"0":
            one_fails(record)
        time.sleep(0.005)  # what a handler waits for, nothing that a test waits for

    orders.behave = behave
    orders.produce(range(40_000))
    with orders.running(concurrency=2, **ladder("1s")):
        orders.until(
            lambda: topics.names[0] in {call.topic for call in orders.calls}, "it is called"
        )
    assert_on_time(orders, *topics.names)
    assert len(orders.calls) < 5_000


@pytest.mark.calm
def test_a_value_of_1_mb_passes_through_a_level(shop: ShopOn) -> None:
    orders = shop(1)
    topics = RetryTopics.of(orders, "300ms")
    orders.behave = fails_until(2)
    value = bytes(range(256)) * 3900
    with orders.running(**ladder("300ms")):
        until_reading(orders, topics)
        orders.write([NewRecord(value, b"k")])
        orders.until_called(2)
        orders.until(topics.are_drained, "source and levels are committed")
    assert [call.value for call in orders.calls] == [value, value]
    assert_on_time(orders, *topics.names)


@pytest.mark.calm
def test_thousands_of_records_wait_in_a_level_beyond_the_window(shop: ShopOn) -> None:
    """The window takes 100 records of a partition and its buffer 40: 500 wait in each."""
    orders = shop(4)
    topics = RetryTopics.of(orders, "2s")
    orders.behave = fails_until(2)
    with orders.running(window={"cells": 10, "cell_records": 10}, **ladder("2s")):
        until_reading(orders, topics)
        for partition in range(4):
            orders.produce(range(500), keys=100, partition=partition)
        orders.until_called(4000)
        orders.until(topics.are_drained, "source and levels are committed")
    assert_on_time(orders, *topics.names)
    assert topics.violations(orders, NoDuplicates()) == []


# ---- copies that do not fit, and copies that make no sense


def small_level(orders: Shop, delay: str, limit: int) -> str:
    """Make the topic of a level that takes only small records."""
    name = RetryTopics.of(orders).name(delay)
    orders.create_topic(name, config={"max.message.bytes": str(limit)})
    return name


def test_a_value_that_a_level_does_not_take_is_held_until_it_does(shop: ShopOn) -> None:
    orders = shop(1)
    topics = RetryTopics.of(orders, "300ms")
    level = small_level(orders, "300ms", 6_000)
    orders.behave = fails_until(2)
    orders.write([NewRecord(b"v" * 10_000, b"k"), NewRecord(b"small", b"k")])
    with orders.running(**ladder("300ms", on_oversize="hold")):
        orders.until_logged(LogEvent.COPY_REFUSED)
        orders.until_open(0)
        orders.set_topic(level, "max.message.bytes", "20000")
        orders.until(topics.are_drained, "source and levels are committed")
    assert sorted(call.attempt for call in orders.calls) == [1, 1, 2, 2]
    assert topics.violations(orders, NoDuplicates()) == []


def test_a_value_that_a_level_does_not_take_can_become_a_dead_letter_that_refers_to_it(
    shop: ShopOn,
) -> None:
    orders = shop(1)
    topics = RetryTopics.of(orders, "300ms")
    small_level(orders, "300ms", 6_000)
    orders.behave = fails
    orders.write([NewRecord(b"v" * 10_000, b"k")])
    with orders.running(**ladder("300ms", on_oversize="reference")):
        orders.until(topics.are_drained, "source and levels are committed")
    (copy,) = topics.dead_letters()
    assert copy.value() is None
    reference = header(copy.headers(), names.VALUE_REF) or b""
    assert reference.startswith(f"{orders.topic}/0/0 sha256:".encode())
    assert topics.copies("300ms") == []
    assert topics.violations(orders) == []


BROKEN: dict[str, list[tuple[str, bytes | None]]] = {
    "no headers": [],
    "numbers that are none": [
        (names.ATTEMPTS, b"many"),
        (names.NOT_BEFORE, b"soon"),
        (names.FIRST_FAILURE, b"-1"),
        (names.ORIGINAL_TOPIC, b"elsewhere"),
        (names.ORIGINAL_PARTITION, b"0x1"),
        (names.ORIGINAL_OFFSET, b"9" * 40),
    ],
    "headers without a value": [
        (names.ATTEMPTS, None),
        (names.NOT_BEFORE, None),
        (names.ORIGINAL_TOPIC, None),
        (names.ID, None),
    ],
    "a topic that is no text": [
        (names.ORIGINAL_TOPIC, b"\xff\xfe"),
        (names.ORIGINAL_PARTITION, b"99"),
        (names.ORIGINAL_OFFSET, b"5"),
    ],
}


def test_records_of_a_level_that_make_no_sense_are_called_for_the_first_time(shop: ShopOn) -> None:
    """Somebody has written them by hand. They fail, and climb on like any others."""
    orders = shop(1)
    topics = RetryTopics.of(orders, "300ms", "500ms")
    orders.behave = fails
    with orders.running(ordering="key", **ladder("300ms", "500ms")):
        until_reading(orders, topics)
        broken = [NewRecord(name.encode(), b"k", headers) for name, headers in BROKEN.items()]
        orders.write(broken, topics.name("300ms"))
        orders.until_called(2 * len(BROKEN))
        orders.until(topics.are_drained, "source and levels are committed")
    for name in BROKEN:
        attempts = [call.attempt for call in orders.calls if call.value == name.encode()]
        assert attempts == [1, 2], name
    dead = [(copy.value() or b"").decode() for copy in topics.dead_letters()]
    assert sorted(dead) == sorted(BROKEN)
