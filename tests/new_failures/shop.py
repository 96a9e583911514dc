"""Versions of a shop on the embedded broker, one after the other."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

from tests.admin.admin import Asking
from tests.commands import DEADLINE_S, Command, Commands, Ended, kafka_of
from tests.reading import spans
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

HANDLERS = {
    "threads": """
@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    judge(order)
""",
    "coroutines": """
@app.handler("orders", group="shop")
async def charge(order: Record) -> None:
    judge(order)
""",
    "children": """
@app.handler("orders", group="shop", pool="processes")
def charge(order: Record) -> None:
    judge(order)
""",
    "batches": """
@app.batch_handler("orders", group="shop")
def charge(orders: list[Record]) -> None:
    for order in orders:
        judge(order)
""",
}

SHOP = """
from window_consumer import App, Record

app = App("shop", version="{version}")


def old_bug(order: Record) -> None:
    raise ValueError(order.key.decode())


def new_bug(order: Record) -> None:
    raise KeyError(order.key.decode())


def judge(order: Record) -> None:
    if order.value == b"bad":
        {bug}(order)
"""
"""Each version has both functions, so that errors keep their places."""

DLQ = "shop.orders.dlq"
QUIET_S = 1.0
"""Long enough for a worker that is not paused to do something."""


class Shop:
    """Runs one version after the other of a worker named charge."""

    def __init__(self, commands: Commands, embedded: EmbeddedBroker):
        self.commands = commands
        self.embedded = embedded
        self._produced = 0
        embedded.create_topic("orders", 1)
        embedded.create_topic(DLQ, 1)

    def configure(self, *, attempts: int = 1, batches: bool = False, **rules: Any) -> None:
        retry = {"attempts": attempts, "backoff": "10ms..20ms", "on_failure": "overtake"}
        charge: dict[str, Any] = {"retry": retry, "concurrency": 2, "on_new_failure": rules}
        if batches:
            charge["batch"] = {"max_records": 5}
        charge["breaker"] = {"enabled": False}
        self.configure_workers(charge=charge)

    def configure_workers(self, **workers: Any) -> None:
        kafka = kafka_of(self.embedded)
        admin = {"listen": "127.0.0.1:0"}
        self.commands.configure({"kafka": kafka, "workers": workers, "admin": admin})

    def produce(self, count: int, *, bad_every: int = 0, topic: str = "orders") -> None:
        for number in range(self._produced, self._produced + count):
            bad = bad_every and number % bad_every == 0
            value = b"bad" if bad else b"good"
            self.embedded.produce(topic, value, key=b"%d" % number)
        self._produced += count

    def write(self, version: str, bug: str, form: str = "threads") -> None:
        self.commands.application(SHOP.format(version=version, bug=bug) + HANDLERS[form])

    def start(self, version: str, bug: str, form: str = "threads") -> Version:
        self.write(version, bug, form)
        return Version(self.commands.start("run", "shop:app"), self.commands)

    def dead_letters(self) -> int:
        client = {**self.embedded.client_settings(), "log_level": 0}
        return sum(span.count for span in spans(client, DLQ).values())

    def fail_once(self, version: str, bug: str, form: str = "threads") -> None:
        """Let a version write one dead letter, and end."""
        before = self.dead_letters()
        self.produce(1, bad_every=1)
        running = self.start(version, bug, form)
        wait_until(lambda: self.dead_letters() > before)
        running.command.stop()


class Version:
    """A version that runs."""

    def __init__(self, command: Command, commands: Commands):
        self.command = command
        self._commands = commands
        self.url = command.wait_for_event(LogEvent.ADMIN_STARTED)["url"].removesuffix("/")

    def found(self, times: int = 1) -> dict[str, Any]:
        """Wait for the line about a new failure."""
        return self.command.wait_for_event(LogEvent.NEW_FAILURE_FOUND, times=times)

    def resume(self, worker: str = "charge") -> Ended:
        return self._commands.run("resume", "--worker", worker, "--url", self.url)

    def doctor(self) -> dict[str, Any]:
        options = ("--for", "2s", "--json", "--url", self.url)
        found: dict[str, Any] = self._commands.run("doctor", "shop:app", *options).json
        return found

    def snapshot(self, worker: str = "charge") -> dict[str, Any]:
        ask = Asking(int(self.url.rpartition(":")[2]))
        until = monotonic() + DEADLINE_S
        while True:
            workers = ask("/api/windows").json["workers"]
            for each in workers:
                if each["name"] == worker and each["snapshot"] is not None:
                    snapshot: dict[str, Any] = each["snapshot"]
                    return snapshot
            assert monotonic() < until, workers
            sleep(0.05)

    def finished(self, worker: str = "charge") -> int:
        counters = self.snapshot(worker)["counters"]
        return int(counters["processed"]) + int(counters["dead_lettered"])

    def settled(self) -> int:
        """Return how many records are finished, once running calls and copies have ended."""
        until, seen = monotonic() + DEADLINE_S, -1
        while (found := self.finished()) != seen:
            assert monotonic() < until
            seen = found
            sleep(QUIET_S)
        return found

    def wait_for(self, finished: int, worker: str = "charge") -> None:
        wait_until(lambda: self.finished(worker) >= finished)
