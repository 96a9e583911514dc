"""``broker``: an embedded broker for other processes of this machine."""

from __future__ import annotations

import pytest

from tests.applications import SHOP
from tests.commands import Command, Commands, produce
from window_consumer.kafka.embedded import LIMITS
from window_consumer.model.log_events import LogEvent


def address_of(broker: Command) -> str:
    broker.wait_for("127.0.0.1:")
    broker.wait_for("\n", times=2)
    (line,) = (each for each in broker.said.splitlines() if each.startswith("127.0.0.1:"))
    return line


def test_it_prints_its_address_and_other_processes_can_use_it(commands: Commands) -> None:
    broker = commands.start("broker", "--topic", "orders:2")
    address = address_of(broker)
    produce(address, "orders", b"first")
    commands.application(SHOP)
    consumer = {"group.protocol": "consumer", "fetch.wait.max.ms": 10}
    client = {"bootstrap.servers": address, "consumer": consumer}
    commands.configure({"kafka": client, "workers": {"charge": {}}})
    running = commands.start("run", "shop:app")
    running.wait_for("charged first")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=2)
    assert running.stop().code == 0
    ended = broker.stop()
    assert (ended.code, ended.out) == (0, f"{address}\n")


def test_it_warns_once_of_what_it_cannot_keep_and_lists_what_it_cannot_do(
    commands: Commands,
) -> None:
    broker = commands.start("broker")
    address_of(broker)
    (warning,) = broker.stop().err.splitlines()
    assert warning.startswith("warning: ")
    assert "5 MiB" in warning
    assert "--limits" in warning
    listed = commands.run("broker", "--limits")
    assert (listed.code, listed.out.splitlines()) == (0, list(LIMITS))


@pytest.mark.parametrize(("topic", "reported"), [("orders:many", "'many'"), ("a b", "'a b'")])
def test_a_topic_that_cannot_be_is_wrong_usage(
    commands: Commands, topic: str, reported: str
) -> None:
    ended = commands.run("broker", "--topic", topic)
    assert (ended.code, ended.out) == (2, "")
    assert reported in ended.err
