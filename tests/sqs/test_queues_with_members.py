"""Queues on a real Kafka: partitions and topics change while clients hold leases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.sqs.running_queues import WAIT_S, Shop, configured
from tests.waiting import wait_until
from window_consumer.sqs.queue import InvalidReceiptError, QueuedMessage
from window_consumer.testing.real_kafka import RealKafka

SETTINGS: dict[str, dict[str, Any]] = {
    "consumer": {"group.protocol": "consumer"},
    "classic": {"group.protocol": "classic", "session.timeout.ms": 6000},
}

StartMember = Callable[..., Shop]


@pytest.fixture
def member(kafka: RealKafka, tmp_path: Path) -> Iterator[StartMember]:
    """``member("a", topic, protocol, **keys)``: a process that has the queue."""
    started: list[Shop] = []

    def start(name: str, topic: str, protocol: str, **keys: Any) -> Shop:
        pull = {"visibility_timeout": "10m"}
        sections = configured(
            topics=[topic],
            group=topic,
            pull=pull,
            revoke_timeout="2s",
            commit_interval="50ms",
            **keys,
        )
        sections["sqs"]["advertise"] = f"http://{name}:9324"
        settings = {"bootstrap.servers": kafka.bootstrap, "consumer": SETTINGS[protocol]}
        started.append(Shop.start(tmp_path / f"{name}.yaml", settings, **sections))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def produce(kafka: RealKafka, topic: str, partitions: int, records: range) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in records:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(WAIT_S) == 0


def is_invalid(shop: Shop, message: QueuedMessage) -> bool:
    """Delete a message; return whether its handle is refused."""
    try:
        shop.delete(message)
    except InvalidReceiptError:
        return True
    return False


@pytest.mark.parametrize("protocol", SETTINGS)
def test_a_rebalance_hands_out_leased_records_again_and_refuses_their_handles(
    protocol: str, member: StartMember, kafka: RealKafka, make_topic: Callable[[str, int], str]
) -> None:
    topic = make_topic("orders", 4)
    produce(kafka, topic, 4, range(40))
    first = member("a", topic, protocol)
    held = first.receive_all(40)
    second = member("b", topic, protocol)
    again: dict[bytes | None, QueuedMessage] = {}

    def has_half() -> bool:
        again.update({each.value: each for each in second.receive(10, wait_s=1.0)})
        return len({each.partition for each in again.values()}) == 2 and len(again) == 20

    wait_until(has_half, WAIT_S, "the second member has the records of two partitions")
    moved = {each.partition for each in again.values()}
    for message in held:
        if message.partition in moved:
            assert is_invalid(first, message)
            with pytest.raises(InvalidReceiptError, match="http://a:9324"):
                second.delete(message)
    kept = [each for each in held if each.partition not in moved]
    assert len(kept) == 20
    first.delete(*kept)
    second.delete(*again.values())
    first.count(processed=20)
    second.count(processed=20)
    assert not first.receive(wait_s=0)
    assert not second.receive(wait_s=0)


def test_a_topic_that_is_recreated_has_new_leases(
    member: StartMember, kafka: RealKafka, make_topic: Callable[[str, int], str]
) -> None:
    topic = make_topic("orders", 1)
    produce(kafka, topic, 1, range(3))
    queue = member("a", topic, "consumer")
    held = queue.receive_all(3)
    topics.make_anew(AdminClient({"bootstrap.servers": kafka.bootstrap}), NewTopic(topic, 1, 1))
    produce(kafka, topic, 1, range(10, 13))
    received: Mapping[bytes | None, QueuedMessage] = {}
    while len(received) < 3:
        received = {each.value: each for each in (*received.values(), *queue.receive(wait_s=1.0))}
    assert sorted(received, key=str) == [b"10", b"11", b"12"]
    wait_until(partial(is_invalid, queue, held[0]), WAIT_S, "its handles are refused")
    queue.delete(*received.values())
    queue.count(processed=3)
