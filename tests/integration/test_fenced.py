"""Processes with one ``group.instance.id``: at a time, one of them works."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from attrs import frozen

from tests.applications import SHOP
from tests.commands import Command, Commands
from tests.conftest import MakeTopic
from tests.integration.members import produce
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

ADVICE = "each process needs its own group.instance.id"


@frozen
class Shop:
    """A static member, to be started more than once."""

    commands: Commands
    bootstrap: str
    topic: str
    group: str

    def start(self, protocol: str) -> Command:
        client = {"group.protocol": protocol, "group.instance.id": "one"}
        worker = {"topics": [self.topic], "group": self.group, "kafka": client}
        config = {"kafka": {"bootstrap.servers": self.bootstrap}, "workers": {"charge": worker}}
        self.commands.configure(config)
        return self.commands.start("run", "shop:app")

    def produce_one(self) -> None:
        produce(self.bootstrap, self.topic, 1, 1)


@pytest.fixture
def shop(
    kafka: RealKafka, commands: Commands, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> Shop:
    commands.application(SHOP)
    return Shop(commands, kafka.bootstrap, make_topic("orders"), unique_name("shop"))


def test_in_the_classic_protocol_the_later_one_works_and_the_earlier_stops_with_1(
    shop: Shop,
) -> None:
    earlier = shop.start("classic")
    earlier.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=1)
    later = shop.start("classic")
    ended = earlier.wait()
    assert ended.code == 1
    failure = ended.line_of(LogEvent.WORKER_FAILED, worker="charge")["message"]
    assert f"group {shop.group}: " in failure
    assert ADVICE in failure
    shop.produce_one()
    later.wait_for("charged 0")
    assert later.stop().code == 0


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_in_the_consumer_protocol_the_later_one_waits_for_the_end_of_the_earlier(
    shop: Shop, end: signal.Signals
) -> None:
    earlier = shop.start("consumer")
    earlier.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=1)
    later = shop.start("consumer")
    later.wait_for(ADVICE)
    earlier.signal(end)
    assert earlier.wait().code == (0 if end is signal.SIGTERM else -signal.SIGKILL)
    shop.produce_one()
    later.wait_for("charged 0")
    assert later.stop().code == 0
