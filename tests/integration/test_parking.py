"""Parking on a real Kafka: a key keeps its order over a restart in the middle of it."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from tests.commands import Commands
from tests.integration.conftest import ShopOn, protocol_settings
from tests.integration.retry_topics import CALM, RetryTopics
from tests.integration.shop import DEADLINE_S, Shop
from window_consumer import Record
from window_consumer.kafka.embedded import NewRecord

RETRY = {"on_failure": "park", "attempts": 1, "levels": ["1s", "2s"]}


def test_a_key_keeps_its_order_over_a_restart(shop: ShopOn, protocol: str) -> None:
    orders = shop(2)
    done: dict[bytes, list[bytes]] = {b"bad": [], b"good": []}
    is_closed = True

    def behave(record: Record) -> None:
        key, value = record.key or b"", record.value or b""
        if key == b"bad" and (is_closed or (value == b"0" and record.attempt < 3)):
            raise ConnectionError("closed")
        done[key].append(value)

    orders.behave = behave
    values = [b"%d" % number for number in range(10)]
    settings = {"ordering": "key", "retry": RETRY, "breaker": dict(CALM)}
    kafka = protocol_settings(protocol)
    with orders.running(kafka=kafka, **settings):
        orders.write([NewRecord(each, key, [], 0) for each in values[:8] for key in done])
        orders.until(lambda: len(done[b"good"]) == 8, "the key that is good goes on")
    assert not done[b"bad"]
    is_closed = False
    with orders.running(kafka=kafka, **settings):
        orders.write([NewRecord(each, key, [], 0) for each in values[8:] for key in done])
        orders.until(lambda: all(len(each) == 10 for each in done.values()), "all are done")
        orders.until_committed()
    assert done == {b"bad": values, b"good": values}


def test_after_a_restart_the_dead_letters_say_who_follows(shop: ShopOn, protocol: str) -> None:
    orders = shop(1)
    ladder = RetryTopics.of(orders, "1s", "2s")
    settings = {"ordering": "key", "retry": {**RETRY, "park": {"on_dead": "follow"}}}
    kafka = protocol_settings(protocol)
    with orders.running(kafka=kafka, **settings):
        pass  # it creates the topics
    copy(orders, "dlq", b"other", 0, b"FATAL")
    copy(orders, "dlq", b"key", 3, b"FATAL")
    for number in (1, 2, 4):
        copy(orders, "park", b"key", number, b"PARKED")
    copy(orders, "dlq", b"key", 0, b"FATAL")
    copy(orders, "dlq", b"key", 1, b"FOLLOWS")
    copy(orders, "park", b"key", 5, b"PARKED")
    with orders.running(kafka=kafka, **settings):
        orders.until(lambda: len(orders.calls) == 1, "the last one follows nobody")
        orders.until_committed()
    assert [each.value for each in orders.calls] == [b"5"]
    values = [each.value() for each in ladder.dead_letters()]
    assert values == [b"0", b"3", b"0", b"1", b"1", b"2", b"4"]


def test_one_redrive_brings_a_dead_head_and_its_followers_back_in_order(
    shop: ShopOn, commands: Commands
) -> None:
    orders = shop(1)
    done: list[bytes | None] = []
    values = [b"%d" % number for number in range(5)]
    is_closed = True

    def behave(record: Record) -> None:
        if is_closed and record.value == b"0":
            raise ConnectionError("closed")
        done.append(record.value)

    orders.behave = behave
    retry = {**RETRY, "park": {"on_dead": "follow"}}
    with orders.running(ordering="key", retry=retry, breaker=dict(CALM)):
        orders.write([NewRecord(each, b"bad", [], 0) for each in values])
        orders.until(lambda: len(orders.dead_letters()) == 5, "the family is dead")
        is_closed = False
        file = str(orders.directory / f"{orders.group}.yaml")
        assert commands.run("dlq", "redrive", "-c", file).code == 0
        orders.until(lambda: len(done) == 5, "all are done")
    assert done == values


def copy(orders: Shop, topic: str, key: bytes, number: int, reason: bytes) -> None:
    """Write a copy of a record, as a worker does that ended right after it."""
    time.sleep(0.005)  # its time differs from that of the one before
    headers = {
        "wc-orig-topic": orders.topic.encode(),
        "wc-orig-partition": b"0",
        "wc-orig-offset": b"%d" % number,
        "wc-format": b"1",
        "wc-reason": reason,
        "wc-attempts": b"0",
    }
    producer = Producer(dict(orders.plain))
    name = f"{orders.group}.{orders.topic}.{topic}"
    producer.produce(name, b"%d" % number, key, 0, headers=list(headers.items()))
    assert producer.flush(DEADLINE_S) == 0
