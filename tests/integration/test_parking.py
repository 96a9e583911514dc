"""Parking on a real Kafka: a key keeps its order over a restart in the middle of it."""

from __future__ import annotations

from tests.integration.conftest import ShopOn, protocol_settings
from tests.integration.retry_topics import CALM
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
