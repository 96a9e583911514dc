"""``concurrency`` and ``status`` against a worker that runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.commands import Command, Commands
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
import asyncio, threading
from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    threading.Event().wait()


@app.handler("orders", group="mails")
async def mail(order: Record) -> None:
    await asyncio.Event().wait()
"""
SLOTS = 6
SETTINGS = {"concurrency": SLOTS, "stop_timeout": "0.1s", "stall": {"action": "report"}}


class Shop:
    """A worker whose calls never end."""

    def __init__(self, commands: Commands, broker: EmbeddedBroker, worker: str):
        self.commands, self.worker = commands, worker
        broker.create_topic("orders", 1)
        commands.application(SHOP)
        broker_settings = broker.client_settings()
        servers = broker_settings.pop("bootstrap.servers")
        commands.configure(
            {
                "kafka": {"bootstrap.servers": servers, "consumer": broker_settings},
                "workers": dict.fromkeys(("charge", "mail"), SETTINGS),
                "admin": {"listen": "127.0.0.1:0"},
            }
        )
        self.command: Command = commands.start("run", "shop:app", "--only", worker)
        self.url: str = self.command.wait_for_event(LogEvent.ADMIN_STARTED)["url"].rstrip("/")
        self.command.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, worker=worker)

    def ask(self, *arguments: str) -> Any:
        ended = self.commands.run(*arguments, "--url", self.url, "--json")
        return ended.json

    def in_flight(self) -> int:
        (worker,) = self.ask("status")["workers"]
        found: int = worker["in_flight"]
        return found


@pytest.mark.parametrize("worker", ["charge", "mail"])
def test_no_more_calls_run_than_a_user_allows_until_that_ends(
    worker: str, commands: Commands, embedded: EmbeddedBroker
) -> None:
    shop = Shop(commands, embedded, worker)
    set_ = shop.ask("concurrency", "-w", worker, "2", "--reason", "bank")
    (process,) = set_["processes"]
    assert (process["concurrency"], process["slots"], process["adapts"]) == (2, SLOTS, False)
    assert process["manual"]["reason"] == "bank"
    shop.command.wait_for_event(LogEvent.CONCURRENCY_SET, worker=worker, limit=2, reason="bank")
    for number in range(2 * SLOTS):
        embedded.produce("orders", b"%d" % number)
    wait_until(lambda: shop.in_flight() == 2)
    assert shop.ask("concurrency", "-w", worker, str(SLOTS + 1))["code"] == "WC110"
    assert shop.in_flight() == 2
    shop.ask("concurrency", "-w", worker, "auto")
    wait_until(lambda: shop.in_flight() == SLOTS)
    shop.command.stop()
