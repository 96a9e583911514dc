"""Cancelling on a real Kafka: through a kill, and without the topic of cancellations."""

from __future__ import annotations

import signal
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import reading, topics
from tests.commands import DEADLINE_S
from tests.conftest import MakeTopic
from tests.delay.service import DelayService
from tests.new_failures.shop import Version
from tests.waiting import wait_until
from window_consumer.delay.config import WORKER

KEYS = [f"key {number}" for number in range(24)]


def test_no_cancelled_record_is_delivered_by_the_member_that_is_left(
    on_kafka: DelayService, make_topic: MakeTopic
) -> None:
    orders = make_topic("orders", 2)
    on_kafka.configure(to=[orders])
    first = on_kafka.start()
    on_kafka.start()
    due_ms = round(time.time() * 1000) + 5000
    for key in KEYS:
        on_kafka.send(key, to=orders, wc_deliver_at=due_ms, wc_id=key)
    on_kafka.cancel(*KEYS[::2])
    first.signal(signal.SIGKILL)
    assert set(on_kafka.wait_for(orders, len(KEYS) // 2)) == set(KEYS[1::2])
    wait_until(lambda: _waiting(on_kafka) == 0, DEADLINE_S, "all are done")
    delivered = {each.key().decode() for each in reading.read_all(on_kafka.client, orders)}
    assert delivered == set(KEYS[1::2])


def test_in_transactions_a_killed_member_delivers_the_others_once(
    on_kafka: DelayService, make_topic: MakeTopic
) -> None:
    orders = make_topic("orders", 1)
    on_kafka.configure(to=[orders], delivery="exactly_once")
    first = on_kafka.start()
    on_kafka.cancel(*KEYS[::2])
    due_ms = round(time.time() * 1000) + 5000
    for key in KEYS:
        on_kafka.send(key, to=orders, wc_deliver_at=due_ms, wc_id=key)
    first.signal(signal.SIGKILL)
    on_kafka.start()
    assert set(on_kafka.wait_for(orders, len(KEYS) // 2)) == set(KEYS[1::2])
    wait_until(lambda: _waiting(on_kafka) == 0, DEADLINE_S, "all are done")
    delivered = sorted(each.key().decode() for each in reading.read_all(on_kafka.client, orders))
    assert delivered == sorted(KEYS[1::2])


def _waiting(service: DelayService) -> int:
    return int(service.commands.run("delay", "status", "--json").json["waiting"])


def test_due_records_wait_until_cancellations_can_be_read(
    on_kafka: DelayService, make_topic: MakeTopic
) -> None:
    orders = make_topic("orders", 1)
    on_kafka.configure(to=[orders])
    running = Version(on_kafka.start(), on_kafka.commands)
    name, admin = f"{on_kafka.topic}.cancel", AdminClient(on_kafka.client)
    admin.delete_topics([name])[name].result(DEADLINE_S)

    def kinds() -> list[str]:
        return [each["kind"] for each in running.snapshot(WORKER)["findings"]]

    wait_until(lambda: kinds() == ["cancellations_unread"], DEADLINE_S, "it knows the cause")
    on_kafka.send("a", "b", to=orders, wc_delay=0)
    wait_until(lambda: _waiting(on_kafka) == 2, DEADLINE_S, "both wait")
    assert reading.read_all(on_kafka.client, orders) == []
    topics.make(admin, NewTopic(name, 1, 1))
    assert set(on_kafka.wait_for(orders, 2)) == {"a", "b"}
    wait_until(lambda: kinds() == [], DEADLINE_S, "nothing waits any longer")


@pytest.mark.parametrize("kept", ["60000", "2678399999"])
def test_a_topic_that_keeps_too_little_is_refused(kept: str, on_kafka: DelayService) -> None:
    on_kafka.configure()
    name, admin = f"{on_kafka.topic}.cancel", AdminClient(on_kafka.client)
    topics.make(admin, NewTopic(name, 1, 1, config={"retention.ms": kept}))
    refused = on_kafka.commands.run("delay", "run")
    assert refused.code == 2, refused.said
    assert name in refused.err
    assert "2678400000" in refused.err
