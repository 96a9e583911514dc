"""Filters and handlers of an application's logging that raise."""

from __future__ import annotations

import pytest

from tests.commands import Commands, kafka_of
from tests.golden_texts import Golden
from window_consumer.kafka.embedded import EmbeddedBroker

SHOP = """
import logging

from window_consumer import App, Record, RetryLater

app = App("shop")


class Hostile(logging.{kind}):
    def {method}(self, record):
        if record.levelno >= logging.WARNING:
            raise RuntimeError("no line gets past me")
        return True


def install():
    for handler in logging.getLogger().handlers:
        {install}


@app.handler("orders", group="shop", concurrency=2, pool="{pool}",
             retry={{"attempts": 2, "backoff": "10ms..10ms"}})
def charge(order: Record) -> None:
    print(f"called {{order.text()}}\\n", end="", flush=True)
    if order.text() == "bad":
        raise ValueError
    if order.text() == "stop":
        raise RetryLater(60)


install()
"""

WAYS = {
    "filter of a handler": ("Filter", "filter", "handler.addFilter(Hostile())"),
    "handler": ("Handler", "emit", "logging.getLogger('window_consumer').addHandler(Hostile())"),
    "filter of the logger": (
        "Filter",
        "filter",
        "logging.getLogger('window_consumer').addFilter(Hostile())",
    ),
}


@pytest.mark.parametrize(
    ("way", "pool"), [*((way, "threads") for way in WAYS), ("filter of a handler", "processes")]
)
def test_no_line_that_is_lost_stops_the_work(
    commands: Commands, embedded: EmbeddedBroker, way: str, pool: str, golden: Golden
) -> None:
    kind, method, install = WAYS[way]
    embedded.create_topic("orders", 1)
    commands.application(SHOP.format(kind=kind, method=method, install=install, pool=pool))
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}}})
    for value in (b"one", b"bad", b"two"):
        embedded.produce("orders", value, partition=0)
    command = commands.start("run", "shop:app")
    command.wait_for("called two")
    command.wait_for("called bad", times=2)
    embedded.produce("orders", b"three", partition=0)
    command.wait_for("called three")
    ended = command.stop()
    assert ended.code == 0, ended.said
    golden("\n".join(sorted({each for each in ended.err.splitlines() if "log lines" in each})))
    assert [each.value() for each in embedded.read_all("shop.orders.dlq")] == [b"bad"]


def test_a_worker_that_fails_is_exit_1_although_nobody_can_read_it(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    """The supervisor itself cannot write why."""
    kind, method, install = WAYS["filter of the logger"]
    embedded.create_topic("orders", 1)
    source = SHOP.format(kind=kind, method=method, install=install, pool="threads")
    commands.application(source.replace('"attempts": 2', '"attempts": 1, "when_spent": "stop"'))
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}}})
    embedded.produce("orders", b"bad", partition=0)
    command = commands.start("run", "shop:app")
    assert command.wait().code == 1
