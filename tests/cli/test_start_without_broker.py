"""A broker that is not there at the start: keep trying, say so, and begin when it comes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.commands import Commands
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing.real_kafka_settings import free_addresses

SHOP = """
from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    print(f"charged {order.text()}", flush=True)
"""


@pytest.fixture
def nowhere() -> str:
    (address,) = free_addresses(1)
    return address


def configuration(bootstrap: str, **consumer: Any) -> dict[str, Any]:
    return {
        "kafka": {"bootstrap.servers": bootstrap, "consumer": consumer},
        "workers": {"charge": {}},
    }


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_start_timeout_ends_it_with_1_and_says_where_nobody_answered(
    commands: Commands, nowhere: str, command: str
) -> None:
    commands.application(SHOP)
    commands.configure(configuration(nowhere))
    more = ["--connect"] if command == "check" else []
    ended = commands.run(command, "shop:app", "--start-timeout", "1s", *more)
    assert (ended.code, ended.out) == (1, "")
    error = ended.err.splitlines()[-1]
    assert error.startswith(f"error: no broker at {nowhere} answered within 1 s")
    assert "Connection refused" in error
    assert "bootstrap.servers" in error


def test_it_says_so_every_few_seconds_and_begins_when_the_broker_comes(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"first")
    embedded.broker_down()
    settings = embedded.client_settings()
    commands.application(SHOP)
    commands.configure(configuration(settings.pop("bootstrap.servers"), **settings))
    running = commands.start("run", "shop:app")
    running.wait_for("charge: no broker at", times=2)
    assert len(running.said.splitlines()) <= 6, running.said
    embedded.broker_up()
    running.wait_for("charged first")
    assert running.stop().code == 0


def test_a_stop_while_waiting_ends_it_with_0(commands: Commands, nowhere: str) -> None:
    commands.application(SHOP)
    commands.configure(configuration(nowhere))
    running = commands.start("run", "shop:app")
    running.wait_for("no broker at")
    ended = running.stop()
    assert ended.code == 0
    assert "stopped while waiting for a broker" in ended.err


def test_a_start_timeout_is_a_duration(commands: Commands, nowhere: str) -> None:
    commands.application(SHOP)
    commands.configure(configuration(nowhere))
    ended = commands.run("run", "shop:app", "--start-timeout", "5")
    assert ended.code == 2
    assert "--start-timeout" in ended.err


def test_an_unknown_log_level_is_wrong_usage(commands: Commands, nowhere: str) -> None:
    commands.application(SHOP)
    commands.configure(configuration(nowhere))
    ended = commands.run("run", "shop:app", "--log-level", "loud")
    assert ended.code == 2
    assert "--log-level" in ended.err
