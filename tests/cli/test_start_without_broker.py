"""A broker that is not there at the start: keep trying, say so, and begin when it comes."""

from __future__ import annotations

import os
import re
from errno import ECONNREFUSED

import pytest

from tests.applications import SHOP
from tests.commands import Commands, kafka_of
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka_settings import free_addresses


@pytest.fixture
def nowhere(commands: Commands) -> str:
    """A shop whose broker is not there, and the address where it is not."""
    (address,) = free_addresses(1)
    commands.application(SHOP)
    commands.configure({"kafka": {"bootstrap.servers": address}, "workers": {"charge": {}}})
    return address


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_start_timeout_ends_it_with_1_and_says_where_nobody_answered(
    commands: Commands, nowhere: str, command: str
) -> None:
    more = ["--connect"] if command == "check" else []
    ended = commands.run(command, "shop:app", "--start-timeout", "3s", *more)
    assert (ended.code, ended.out) == (1, "")
    error = ended.err.splitlines()[-1]
    # What has been done before takes some of that time.
    assert re.match(rf"error: .*\b{nowhere}\b.* [0-3](\.\d)? s", error)
    assert os.strerror(ECONNREFUSED) in error
    assert "bootstrap.servers" in error


def test_it_says_so_every_few_seconds_and_begins_when_the_broker_comes(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"first")
    embedded.broker_down()
    commands.application(SHOP)
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}}})
    running = commands.start("run", "shop:app")
    running.wait_for_event(LogEvent.BROKER_AWAITED, worker="charge", times=2)
    assert len(running.said.splitlines()) <= 6, running.said
    embedded.broker_up()
    running.wait_for("charged first")
    assert running.stop().code == 0


@pytest.mark.usefixtures("nowhere")
def test_a_stop_while_waiting_ends_it_with_0(commands: Commands) -> None:
    running = commands.start("run", "shop:app")
    running.wait_for_event(LogEvent.BROKER_AWAITED)
    ended = running.stop()
    assert ended.code == 0
    ended.line_of(LogEvent.START_CANCELLED)


@pytest.mark.usefixtures("nowhere")
def test_a_start_timeout_is_a_duration(commands: Commands) -> None:
    ended = commands.run("run", "shop:app", "--start-timeout", "5")
    assert ended.code == 2
    assert "--start-timeout" in ended.err


@pytest.mark.usefixtures("nowhere")
def test_an_unknown_log_level_is_wrong_usage(commands: Commands) -> None:
    ended = commands.run("run", "shop:app", "--log-level", "loud")
    assert ended.code == 2
    assert "--log-level" in ended.err
