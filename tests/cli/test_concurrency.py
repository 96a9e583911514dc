"""``concurrency`` and ``status`` against a worker that runs."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Command, Commands
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
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
    """A worker whose calls end as the test lets them."""

    def __init__(
        self,
        commands: Commands,
        broker: EmbeddedBroker,
        worker: str,
        source: str = SHOP,
        **keys: Any,
    ):
        self.commands, self.worker = commands, worker
        broker.create_topic("orders", 1)
        commands.application(source)
        broker_settings = broker.client_settings()
        servers = broker_settings.pop("bootstrap.servers")
        commands.configure(
            {
                "kafka": {"bootstrap.servers": servers, "consumer": broker_settings},
                "workers": {**dict.fromkeys(HANDLERS[source], SETTINGS), worker: SETTINGS | keys},
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


GATED = """
import fcntl
from window_consumer import App, Record

app = App("shop")


def call(records: int) -> None:
    with open("gate 1" if say(f"begin {records}") <= 6 else "gate 2") as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)
    say(f"end {records}")


def say(what: str) -> int:
    with open("calls", "a+") as calls:
        calls.write(what + "\\n")
        calls.flush()
        at = calls.tell()
        calls.seek(0)  # to tell the number of this line
        return calls.read(at).count("\\n")


@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    call(1)


@app.batch_handler("orders", group="shop-store")
def store(orders: list[Record]) -> None:
    call(len(orders))
"""
"""Calls wait for a lock that the test holds, in any process: the first six for another one."""

HANDLERS = {SHOP: ("charge", "mail"), GATED: ("charge", "store")}

RECORDS = 60
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "batches": ("store", {"batch": {"max_records": 3}}),
    "batches in processes": ("store", {"pool": "processes", "batch": {"max_records": 3}}),
    "fair shares in processes": (
        "charge",
        {"pool": "processes", "fair": {"by": "header('tenant')"}},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_running_calls_end_and_then_no_more_begin_than_a_user_allows(
    form: str, commands: Commands, embedded: EmbeddedBroker
) -> None:
    worker, keys = FORMS[form]
    calls = commands.directory / "calls"
    calls.touch()

    def begun() -> int:
        return sum(each > 0 for each in steps(calls.read_text()))

    with ExitStack() as first, ExitStack() as others:
        first.enter_context(locked(commands.directory / "gate 1"))
        others.enter_context(locked(commands.directory / "gate 2"))
        shop = Shop(commands, embedded, worker, GATED, **keys)
        embedded.fill("orders", [order(number) for number in range(RECORDS)])
        wait_until(lambda: begun() == SLOTS)
        (process,) = shop.ask("concurrency", "-w", worker, "2")["processes"]
        assert process["concurrency"] == 2
        first.close()
        wait_until(lambda: begun() == SLOTS + 2)
        assert shop.in_flight() == 2
        assert begun() == SLOTS + 2
        shop.ask("concurrency", "-w", worker, "auto")
        wait_until(lambda: begun() == SLOTS + SLOTS)
        others.close()
    wait_until(lambda: sum(each for each in steps(calls.read_text()) if each > 0) == RECORDS)
    shop.command.stop()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock of a file, which is created."""
    with file.open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield


def order(number: int) -> NewRecord:
    tenant = b"big" if number % 10 else b"small"
    return NewRecord(b"value", b"%d" % number, [("tenant", tenant)])


def steps(text: str) -> list[int]:
    """Return the records of each call that began, and, negative, of each that ended."""
    words = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [int(count) if what == "begin" else -int(count) for what, count in words]
