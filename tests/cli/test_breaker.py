"""``window-consumer breaker``: a person says whether records are bad, or there is an outage."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any

import pytest

from tests.admin.admin import Asking
from tests.commands import Commands, Ended, kafka_of
from window_consumer.admin.interventions import BREAKER_WORDS
from window_consumer.engine.guards.breaker_state import BreakerAnswer, BreakerState
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
from pathlib import Path
from time import sleep

from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    sleep(0.005)
    if Path("down").exists():
        raise ValueError(order.text())
"""
TOKEN = "0123456789abcdef"  # noqa: S105 - no secret of anybody
DLQ = "shop.orders.dlq"
RECORDS, FULL = 400, 100
"""Records of the topic, and those that fit into the windows."""
WITHIN_S = 60.0


class Worker:
    """A worker whose handler always fails while a file exists, and its commands."""

    def __init__(self, commands: Commands, embedded: EmbeddedBroker, **breaker: Any):
        self.commands, self.embedded = commands, embedded
        self.down = commands.directory / "down"
        self.down.touch()
        retry = {"attempts": 2, "backoff": "10ms..50ms", "on_failure": "overtake"}
        window = {"cells": 2, "cell_records": FULL // 2}
        charge = {"retry": retry, "window": window, "concurrency": 4, "breaker": breaker}
        commands.configure(
            {
                "kafka": kafka_of(embedded),
                "workers": {"charge": charge},
                "admin": {"listen": "127.0.0.1:0", "token": TOKEN},
            }
        )
        for number in range(RECORDS):
            embedded.produce("orders", b"%d" % number, key=b"%d" % number)
        self.run = commands.start("run", "shop:app")
        self.url = self.run.wait_for_event(LogEvent.ADMIN_STARTED)["url"].removesuffix("/")

    def breaker(self, *options: str, worker: str = "charge") -> Ended:
        where = ("--worker", worker, "--url", self.url)
        return self.commands.run("breaker", *where, *options, env={"WINDOW_CONSUMER_TOKEN": TOKEN})

    @property
    def snapshot(self) -> dict[str, Any]:
        ask, until = Asking(int(self.url.rpartition(":")[2])), monotonic() + WITHIN_S
        while not (found := ask("/api/windows", authorization=f"Bearer {TOKEN}").json["workers"]):
            assert monotonic() < until
        snapshot: dict[str, Any] = found[0]["snapshot"]
        return snapshot

    def wait_until_open(self) -> int:
        """Wait until it is open, and all records in its window failed; return how many left."""
        until = monotonic() + WITHIN_S
        while (seen := self.snapshot)["breaker"]["state"] != BreakerState.OPEN or (
            not seen["partitions"] or seen["partitions"][0]["failed"] < FULL // 2
        ):
            assert monotonic() < until, seen
            sleep(0.1)
        return int(seen["counters"]["dead_lettered"])


@pytest.fixture
def start(commands: Commands, embedded: EmbeddedBroker) -> Iterator[Any]:
    embedded.create_topic("orders", 1)
    commands.application(SHOP)
    started: list[Worker] = []

    def start(**breaker: Any) -> Worker:
        started.append(Worker(commands, embedded, **breaker))
        return started[-1]

    yield start
    for each in started:
        each.run.stop()


def test_what_fills_the_windows_is_released_or_held_as_a_person_says(start: Any) -> None:
    worker = start()
    before = worker.wait_until_open()
    doctor = worker.commands.run(
        "doctor", "--app", "shop:app", "--json", "--for", "2s", "--url", worker.url,
        env={"WINDOW_CONSUMER_TOKEN": TOKEN},
    )  # fmt: skip
    (cause,) = [each for each in doctor.json["causes"] if each["cause"] == "breaker_open"]
    assert cause["figures"]["windows_full"]
    assert f"breaker --worker charge --url {worker.url} --release" in cause["sentence"]

    held = worker.snapshot["partitions"][0]["failed"]
    released = worker.breaker("--release")
    assert (released.code, released.err) == (0, "")
    until = monotonic() + WITHIN_S
    while worker.snapshot["counters"]["dead_lettered"] < before + held:
        assert monotonic() < until, worker.snapshot
        sleep(0.1)
    asked: dict[str, Any] = {"worker": "charge", "client": "127.0.0.1"}
    worker.run.wait_for_event(
        LogEvent.ADMIN_BREAKER_DECIDED, **asked, wanted="release", result=BreakerAnswer.OBEYED
    )
    assert worker.breaker("--hold").code == 0
    worker.run.wait_for_event(LogEvent.ADMIN_BREAKER_DECIDED, **asked, wanted="hold")
    left = len(worker.embedded.read_all(DLQ))
    assert left >= before + held
    sleep(1.0)  # records that leave all the same have the time to
    assert len(worker.embedded.read_all(DLQ)) == left
    worker.down.unlink()
    until = monotonic() + WITHIN_S
    while worker.snapshot["counters"]["processed"] < RECORDS - left:
        assert monotonic() < until, worker.snapshot
        sleep(0.1)
    refused = worker.breaker("--release")
    words = BREAKER_WORDS[BreakerAnswer.NOTHING_HELD]
    while refused.code == 0:  # it is opening up
        assert monotonic() < until, worker.snapshot
        refused = worker.breaker("--release")
    assert refused.code == 1
    assert refused.err.startswith(f"error: charge: {words} [WC")


def test_a_breaker_that_is_switched_off_and_a_worker_that_there_is_not_are_reported(
    start: Any,
) -> None:
    worker = start(enabled=False)
    assert worker.snapshot["breaker"]["state"] == BreakerState.CLOSED
    for name, answer, more in (
        ("charge", BreakerAnswer.SWITCHED_OFF, ""),
        ("nobody", BreakerAnswer.NO_SUCH_WORKER, ", only charge"),
    ):
        for option in ("--release", "--hold"):
            refused = worker.breaker(option, worker=name)
            assert (refused.code, refused.out) == (1, "")
            assert refused.err.startswith(f"error: {name}: {BREAKER_WORDS[answer]}{more} [WC")
    without_token = worker.commands.run(
        "breaker", "--worker", "charge", "--hold", "--url", worker.url
    )
    assert (without_token.code, "WINDOW_CONSUMER_TOKEN" in without_token.err) == (1, True)


@pytest.mark.parametrize(
    "options", [(), ("--release", "--hold"), ("--release", "--url", "ftp://x")]
)
def test_what_decides_nothing_is_wrong_usage(options: tuple[str, ...], commands: Commands) -> None:
    ended = commands.run("breaker", "--worker", "charge", *options)
    assert (ended.code, ended.out) == (2, "")


def test_an_address_where_nothing_listens_is_reported(commands: Commands) -> None:
    url = "http://127.0.0.1:1"
    ended = commands.run("breaker", "--worker", "charge", "--hold", "--url", url)
    assert (ended.code, url in ended.err) == (1, True)
