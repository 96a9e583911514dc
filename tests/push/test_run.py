"""``run`` and ``check`` without a module: the configuration is all there is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.commands import Commands, kafka_of
from tests.push.service import Answered, Service
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker, service: Service) -> Commands:
    embedded.create_topic("orders", 1)
    for number in range(20):
        embedded.produce("orders", f"order {number}".encode())
    worker = {"topics": ["orders"], "group": "shop", "http": {"url": service.url}}
    commands.configure({"kafka": kafka_of(embedded), "workers": {"orders": worker}})
    return commands


def test_records_are_posted_by_a_configuration_alone(shop: Commands, service: Service) -> None:
    assert shop.run("check").code == 0
    running = shop.start("run", "-c", "workers.yaml")
    service.wait_for(20)
    ended = running.stop()
    assert ended.code == 0
    assert ended.summary("orders") == {"processed": 20}
    assert sorted(service.bodies) == sorted(f"order {number}" for number in range(20))


def test_a_stop_in_the_middle_of_a_call_leaves_its_record_for_the_next_run(
    shop: Commands, service: Service
) -> None:
    async def never() -> Answered:
        await asyncio.sleep(600)
        return Answered()

    def answer(posted: Any) -> Any:
        return never() if posted.body == b"order 7" else Answered()

    service.answer = answer
    running = shop.start("run", "--set", "workers.orders.stop_timeout=300ms")
    service.wait_for(20)
    ended = running.stop()
    assert ended.code == 0
    service.posted.clear()
    service.answer = lambda _: Answered()
    again = shop.start("run")
    service.wait_for(1)
    assert again.stop().summary("orders") == {"processed": 1}
    assert service.bodies == ["order 7"]


def test_a_pause_of_the_service_is_logged_and_ends(shop: Commands, service: Service) -> None:
    def answer(_: object) -> Answered:
        first = len(service.posted) == 1
        return Answered(503, headers={"Retry-After": "1"}) if first else Answered()

    service.answer = answer
    running = shop.start("run", "--set", "workers.orders.concurrency=1")
    line = running.wait_for_event(LogEvent.PUSH_PAUSE, worker="orders")
    assert line["seconds"] == 1
    service.wait_for(21)
    assert running.stop().summary("orders")["processed"] == 20
