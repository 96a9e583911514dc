"""What a start finds in the ladder, whatever has happened to its logs in the meantime."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import reading, topics
from tests.integration.conftest import ShopOn
from tests.integration.retry_topics import CALM
from tests.integration.shop import DEADLINE_S, Shop
from window_consumer import Record
from window_consumer.kafka.embedded import NewRecord

SETTINGS: Mapping[str, Any] = {
    "ordering": "key",
    "retry": {"on_failure": "park", "attempts": 1, "levels": ["1h"]},
    "breaker": dict(CALM),
}


class ParkedShop:
    """A worker that has ended, with one key in its ladder: a head in the level, three parked."""

    def __init__(self, orders: Shop):
        self.orders = orders
        self.park = f"{orders.group}.{orders.topic}.park"
        self.level = f"{orders.group}.{orders.topic}.retry.1h"
        self.admin = AdminClient(dict(orders.plain))
        self.numbers = count()
        self.is_closed = True
        orders.behave = self._fail
        with orders.running(**SETTINGS):
            self.write(b"bad", 4)
            orders.until(lambda: self.end(self.park) == 3, "three are parked")
            orders.until_committed()
        orders.calls.clear()

    def _fail(self, record: Record) -> None:
        if self.is_closed and record.key == b"bad":
            raise ValueError("closed")

    def write(self, key: bytes, times: int = 1) -> None:
        """Write more records of a key."""
        self.orders.write([NewRecord(b"%d" % next(self.numbers), key, [], 0) for _ in range(times)])

    def end(self, topic: str) -> int:
        return reading.spans(self.orders.plain, topic)[0].end

    def until_parked(self, end: int) -> None:
        self.orders.until(lambda: self.end(self.park) == end, "one more is parked")

    def until_called(self, key: bytes) -> None:
        self.orders.until(lambda: any(each.key == key for each in self.orders.calls), "a call")

    def called(self) -> list[bytes | None]:
        return [each.value for each in self.orders.calls if each.key == b"bad"]

    def copies(self, topic: str) -> list[NewRecord]:
        return [
            NewRecord(each.value(), each.key(), list(each.headers() or ()), 0)
            for each in reading.read_all(self.orders.plain, topic)
        ]

    def fill(self, topic: str, records: list[NewRecord]) -> None:
        producer = Producer(dict(self.orders.plain))
        for each in records:
            producer.produce(topic, each.value, each.key, 0, headers=list(each.headers))
        assert producer.flush(DEADLINE_S) == 0

    def recreate(self, topic: str) -> None:
        topics.make_anew(self.admin, NewTopic(topic, 1, 1))

    def delete_until(self, topic: str, offset: int) -> None:
        place = ClientPartition(topic, 0, offset)
        self.admin.delete_records([place])[place].result(DEADLINE_S)


def transaction(shop: ParkedShop, topic: str) -> Producer:
    """Begin a transaction with one record, by a stranger."""
    producer = Producer({**shop.orders.plain, "transactional.id": shop.orders.group})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"a stranger's", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    return producer


def end_in_markers(shop: ParkedShop) -> None:
    for topic in (shop.park, shop.level):
        transaction(shop, topic).abort_transaction(DEADLINE_S)
        transaction(shop, topic).commit_transaction(DEADLINE_S)


def delete_the_first(shop: ParkedShop) -> None:
    shop.delete_until(shop.park, 2)


def test_successors_are_parked_whatever_their_logs_end_and_begin_with(shop: ShopOn) -> None:
    parked = ParkedShop(shop(1))
    for meddle in (end_in_markers, delete_the_first):
        meddle(parked)
        end = parked.end(parked.park)
        parked.orders.calls.clear()
        parked.write(b"bad")
        parked.write(b"good")
        with parked.orders.running(**SETTINGS):
            parked.until_parked(end + 1)
            parked.until_called(b"good")
        assert parked.called() == []


def test_copies_in_a_recreated_topic_are_found(shop: ShopOn) -> None:
    """The worker that wrote them was killed before it committed there."""
    parked = ParkedShop(shop(1))
    copies = parked.copies(parked.park)
    parked.recreate(parked.park)
    parked.fill(parked.park, copies)
    parked.delete_until(parked.level, 1)
    parked.write(b"bad")
    parked.is_closed = False
    with parked.orders.running(**SETTINGS):
        parked.orders.until_called(4)
    assert parked.called() == [b"1", b"2", b"3", b"4"]
