"""``pool: processes`` on the command line: records that kill, calls that hang, starts and ends."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests import reading
from tests.commands import Command, Commands, kafka_of
from tests.golden_texts import Golden
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
import os
import sys
import time

from window_consumer import App, Record

app = App("shop")


def say(text):
    os.write(1, f"{text}\\n".encode())  # in one piece: others write to the same pipe


@app.lifespan
def resources():
    say(f"entered {os.getpid()}")
    yield os.getpid()
    say(f"left {os.getpid()}")


@app.middleware
def noted(record, call_next):
    say(f"calling {record.text()}")
    return call_next(record)


@app.redact
def without_cards(text: str) -> str:
    return text.replace("4711", "#")


KEYS = {"group": "shop", "concurrency": 2, "pool": "processes", "stall": {"after": "5s"},
        "retry": {"attempts": 1, "crash_attempts": 2, "backoff": "10ms..10ms"}}


@app.handler("orders", **KEYS, when=lambda order: order.text() == "exit")
def leave(order: Record) -> None:
    os._exit(3)


@app.handler("orders", **KEYS)
def charge(order: Record) -> None:
    assert order.state == os.getpid()
    if order.text() == "refuse":
        raise ValueError("card 4711 is refused")
    while order.text() == "hang":
        pass
    while order.text() == "wait" and not os.path.exists("go on"):
        time.sleep(0.01)
"""


def without_numbers(line: str) -> str:
    """Return a line without the numbers that differ from run to run."""
    return re.sub(r"(?<=slot-)\d+|[0-9.]+(?= m?s\b)|(?<=\[)\d(?=\])", "N", line)


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    embedded.create_topic("orders", 2)
    commands.application(SHOP)
    worker = {"handler": ["leave", "charge"]}
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": worker}})
    return commands


def pids_of(command: Command, what: str = "entered") -> list[int]:
    words = [line.split() for line in command.said.splitlines()]
    return [int(line[1]) for line in words if len(line) == 2 and line[0] == what]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_records_that_kill_or_hang_leave_and_the_others_are_done(
    shop: Commands, embedded: EmbeddedBroker, golden: Golden
) -> None:
    for value in ("one", "exit", "two", "hang", "refuse", "three"):
        embedded.produce("orders", value.encode(), partition=0)
    command = shop.start("run", "shop:app")
    for value in ("one", "two", "three"):
        command.wait_for(f"calling {value}\n")
    client: dict[str, Any] = {"bootstrap.servers": embedded.bootstrap}
    wait_until(lambda: len(reading.read_all(client, "shop.orders.dlq")) == 3)
    found = {
        each.value(): dict(each.headers()) for each in reading.read_all(client, "shop.orders.dlq")
    }
    assert found[b"exit"]["wc-reason"] == b"CRASHED"
    assert found[b"exit"]["wc-attempts"] == b"2"
    assert b"ended with exit code 3" in found[b"exit"]["wc-error-message"]
    assert found[b"exit"]["wc-handler"] == b"leave"
    assert found[b"hang"]["wc-handler"] == b"charge"
    assert found[b"hang"]["wc-reason"] == b"STALLED"
    assert found[b"refuse"]["wc-error-message"] == b"card # is refused"
    assert b"in charge" in found[b"hang"]["wc-error-stack"]
    command.wait_for("entered ", times=5)  # two at first, and one for each that ended
    ended = command.stop()
    assert ended.code == 0, ended.said
    assert "3 processed" in ended.err
    crashed = ended.line_of(LogEvent.CALL_FAILED, offset=1, attempt=1)
    golden(without_numbers(crashed["message"]))
    stalled = ended.line_of(LogEvent.CALL_STALLED, offset=3)
    golden(without_numbers(stalled["message"].partition("\n")[0]))
    assert ended.out.count("calling hang\n") == 1
    assert sorted(pids_of(command, "left")) == sorted(pids_of(command)[-2:])
    assert not any(map(is_alive, pids_of(command)))


BATCHES = """
import os
from dataclasses import dataclass

from window_consumer import App, Fatal, PartialFailure, Produce, Record

app = App("shop")


@dataclass
class Click:
    what: str


@app.middleware(around="batches")
def noted(records, call_next):
    os.write(1, f"calling {[record.offset for record in records]}\\n".encode())
    return call_next(records)


@app.batch_handler("orders", group="shop", pool="processes", concurrency=1, ordering="partition",
                   max_records=4, min_records=4, max_wait="60s", stall={"after": "1m"},
                   retry={"attempts": 1, "crash_attempts": 1, "on_failure": "overtake"})
def store(clicks: list[Click], records: list[Record]) -> Produce | None:
    for click in clicks:
        if click.what == "exit":
            os._exit(3)
    bad = [record for click, record in zip(clicks, records) if click.what == "bad"]
    if bad:
        raise PartialFailure(failed=[(record, Fatal("bad")) for record in bad])
    return Produce("results", None, str(records[0].offset))
"""


def test_a_batch_that_kills_is_halved_and_every_record_has_its_own_end(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 1)
    embedded.create_topic("results", 1)
    commands.application(BATCHES)
    commands.configure({"kafka": kafka_of(embedded), "workers": {"store": {}}})
    for what in ("ok", "bad", "ok", "", "ok", "ok", "exit", "ok"):
        value = b'{"what": "%s"}' % what.encode() if what else b"no JSON"
        embedded.produce("orders", value, partition=0)
    command = commands.start("run", "shop:app")
    client: dict[str, Any] = {"bootstrap.servers": embedded.bootstrap}
    wait_until(lambda: len(reading.read_all(client, "results")) == 2)
    found = [dict(each.headers()) for each in reading.read_all(client, "shop.orders.dlq")]
    ended = command.stop()
    assert ended.code == 0, ended.said
    reasons = sorted(each["wc-reason"] for each in found)
    assert reasons == [b"CRASHED", b"DECODE", b"FATAL"]
    assert "5 processed" in ended.err
    calls = [line for line in ended.out.splitlines() if line.startswith("calling")]
    parts = [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [6, 7], [6], [7]
    assert calls == [f"calling {offsets}" for offsets in parts]


def test_children_do_not_outlive_a_parent_that_is_killed(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.produce("orders", b"hang", partition=0)
    command = shop.start("run", "shop:app")
    command.wait_for("calling hang")
    children = pids_of(command)
    assert len(children) == 2
    command.process.kill()
    wait_until(lambda: not any(map(is_alive, children)))


def test_signals_to_the_whole_group_are_the_parents(
    shop: Commands, embedded: EmbeddedBroker, golden: Golden
) -> None:
    settings = ["--set=workers.charge.concurrency=1", "--set=workers.charge.stall.after=1m"]
    command = shop.start("run", "shop:app", *settings)
    command.wait_for("reads 2 partitions")
    (child,) = pids_of(command)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(child, number)
    command.signal(signal.SIGUSR1)
    command.wait_for(f"wc-charge-slot-0 ({child})")
    (idle,) = (each for each in command.said.splitlines() if f"wc-charge-slot-0 ({child})" in each)
    golden(idle, child=child)
    embedded.produce("orders", b"wait", partition=0)
    command.wait_for("calling wait")
    command.signal(signal.SIGUSR1)
    command.wait_for("in charge")
    shown = command.said[command.said.index("  orders[0]@0 attempt 1 for ") :]
    assert "in charge\n" in shown
    golden(shown.splitlines()[1], child=child)
    (shop.directory / "go on").touch()
    os.kill(child, signal.SIGINT)
    ended = command.stop()
    assert ended.code == 0
    assert pids_of(command, "left") == [child]


def test_a_lifespan_that_fails_in_a_child_ends_the_start(shop: Commands, golden: Golden) -> None:
    source = SHOP.replace('say(f"entered', 'raise OSError("no database")\n    say(f"entered')
    shop.application(f"{source}\nos.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n")
    ended = shop.run("run", "shop:app")
    assert ended.code == 1
    (error,) = (each for each in ended.err.splitlines() if each.startswith("error: "))
    golden(error, directory=shop.directory)
    golden(ended.line_of(LogEvent.CONCURRENCY_EXCEEDED)["message"])


def test_an_application_that_children_cannot_import_is_refused(
    shop: Commands, golden: Golden
) -> None:
    shop.application("""
def make():
    from window_consumer import App
    made = App("shop")

    @made.handler("orders", group="shop", pool="processes")
    def charge(order):
        pass

    made.handler("orders", group="shop", pool="processes", name="leave", when=bool)(charge)
    return made
""")
    ended = shop.script("""
from shop import make
from window_consumer.model.errors import UsageError

try:
    make().start("workers.yaml")
except UsageError as error:
    print("refused:", error)
""")
    golden(ended.out, directory=shop.directory)
    shop.application(SHOP)
    ended = shop.script("""
from shop import app
from window_consumer.model.errors import UsageError

app.middleware(lambda record, call_next: call_next(record))
try:
    app.start("workers.yaml")
except UsageError as error:
    print("refused:", error)
""")
    golden(ended.out, directory=shop.directory)
    ended = shop.script(
        SHOP
        + """
from window_consumer.model.errors import UsageError

try:
    app.start("workers.yaml")
except UsageError as error:
    print("refused:", error)
"""
    )
    golden(ended.out, directory=shop.directory)
