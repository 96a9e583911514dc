"""Signals, and ends that nobody asked for: drained, at once, or within bounds."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from confluent_kafka import Consumer, TopicPartition

from tests.cli.test_health import address_of
from tests.commands import DEADLINE_S, Command, Commands, Ended, kafka_of
from tests.telemetry.asking import asked
from tests.waiting import wait_until
from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
import time
from pathlib import Path

from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop", concurrency=4)
def charge(order: Record) -> None:
    print(f"started {order.text()}", flush=True)
    while order.text().startswith("wait") and not Path("release").exists():
        time.sleep(0.01)
    if order.text() == "hang":
        hang()
    if order.text() == "poison":
        raise ValueError("no card")
    print(f"finished {order.text()}", flush=True)


def hang() -> None:
    time.sleep(1_000_000)


@app.handler("parcels", group="ship")
def ship(parcel: Record) -> None:
    charge(parcel)
"""

GRACE_S = 5 + 40
"""How long after its stop timeout a process has ended, and what a busy machine may add.

What hangs in these tests hangs for days.
"""


@frozen
class Shop:
    """A running ``window-consumer run`` on an embedded broker."""

    commands: Commands
    broker: EmbeddedBroker

    def start(self, *orders: bytes, **workers: Mapping[str, Any]) -> Command:
        """Start with these records in one partition; return once the first has been started."""
        for order in orders:
            self.broker.produce("orders", order, partition=0)
        config = {"charge": {}, "ship": {"enabled": False}, **workers}
        health = {"listen": "127.0.0.1:0"}
        self.commands.configure(
            {"kafka": kafka_of(self.broker), "workers": config, "health": health}
        )
        running = self.commands.start("run", "shop:app")
        running.wait_for(f"started {orders[0].decode()}")
        return running

    def release(self) -> None:
        (self.commands.directory / "release").touch()

    def committed(self, topic: str = "orders", group: str = "shop") -> dict[int, int]:
        return committed_offsets(self.broker.client_settings(), group, topic)


def make_shop(commands: Commands, broker: EmbeddedBroker) -> Shop:
    broker.create_topic("orders", 1)
    broker.create_topic("parcels", 1)
    commands.application(SHOP)
    return Shop(commands, broker)


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Shop:
    return make_shop(commands, embedded)


@pytest.fixture(scope="module", autouse=True)
def hovering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A worker whose start cell hovers from the first test of this file on."""
    directory: Path = tmp_path_factory.mktemp("hovering")
    with EmbeddedBroker() as broker, Commands(directory) as commands:
        yield make_shop(commands, broker).start(b"hang", b"fine", charge={"stop_timeout": "0"})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_calls_finish_commits_and_ends_with_0(
    shop: Shop, number: signal.Signals
) -> None:
    orders = [b"wait 0", b"wait 1", b"wait 2"]
    running = shop.start(*orders)
    running.wait_for("started", times=3)
    running.signal(number)
    running.wait_for_event(LogEvent.STOP_REQUESTED, timeout_s=20)
    shop.release()
    ended = running.wait()
    assert ended.code == 0
    assert ended.summary() == {"processed": 3}
    assert shop.committed() == {0: 3}


def test_a_worker_that_stops_by_itself_says_so_before_it_waits_for_what_runs(shop: Shop) -> None:
    stall = {"after": "300ms", "max_abandoned": 0}
    running = shop.start(b"wait 0", charge={"stop_timeout": "1m", "stall": stall})
    running.wait_for_event(LogEvent.WORKER_GIVEN_UP, worker="charge")
    assert not running.lines_of(LogEvent.WORKER_FAILED)
    shop.release()
    ended = running.wait()
    assert ended.code == 1
    ended.line_of(LogEvent.WORKER_FAILED, worker="charge")


def test_what_had_not_started_at_the_stop_is_what_the_next_start_begins_with(shop: Shop) -> None:
    running = shop.start(b"wait 0", b"wait 1", b"late 0", b"late 1", charge={"concurrency": 2})
    running.wait_for("started", times=2)
    running.signal(signal.SIGTERM)
    # The line about it is written before the poll thread hears of it.
    ready = f"{address_of(running)}/readyz"
    wait_until(lambda: asked(ready)[0] == 503, DEADLINE_S, "a worker that drains")
    shop.release()
    ended = running.wait()
    assert ended.code == 0
    assert "late" not in ended.out
    assert ended.summary() == {"processed": 2, "unfinished": 2}
    again = shop.start(b"new")
    again.wait_for("finished", times=3)
    ended = again.stop()
    assert "wait" not in ended.out
    assert shop.committed() == {0: 5}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_with_130_at_once(shop: Shop, number: signal.Signals) -> None:
    running = shop.start(b"hang")
    running.signal(number)
    running.wait_for_event(LogEvent.STOP_REQUESTED)
    running.signal(number)
    assert running.wait().code == 130


def test_after_a_second_signal_a_new_start_repeats_what_was_unfinished_and_nothing_else(
    shop: Shop,
) -> None:
    running = shop.start(b"wait", b"fine", charge={"commit_interval": "10ms"})
    running.wait_for("finished fine")
    wait_until(lambda: has_finished_ranges(shop), DEADLINE_S, "a commit with a finished range")
    running.signal(signal.SIGTERM)
    running.wait_for_event(LogEvent.STOP_REQUESTED)
    running.signal(signal.SIGTERM)
    assert running.wait().code == 130
    shop.release()
    again = shop.start(b"new")
    again.wait_for("finished wait")
    ended = again.stop()
    assert ended.code == 0
    assert "started fine" not in ended.out


def has_finished_ranges(shop: Shop) -> bool:
    """Return whether the commit knows of records that are finished beyond its offset."""
    settings = {**shop.broker.client_settings(), "group.id": "shop"}
    consumer = Consumer(settings)
    try:
        found = consumer.committed([TopicPartition("orders", 0)], timeout=DEADLINE_S)
        note = decode(found[0].metadata)
    finally:
        consumer.close()
    return note is not None and len(note.finished) > 0


def test_a_handler_that_never_returns_is_left_behind_and_what_was_finished_is_committed(
    shop: Shop,
) -> None:
    running = shop.start(b"first", b"hang", b"later", charge={"stop_timeout": "1s"})
    running.wait_for("finished later")
    ended, seconds = timed_stop(running)
    assert ended.code == 1
    assert 1 <= seconds < 1 + GRACE_S
    ended.line_of(LogEvent.CALLS_UNFINISHED, calls=1)
    assert ended.summary() == {"processed": 2, "unfinished": 1}
    again = shop.start(b"new", charge={"stop_timeout": "0"})
    again.wait_for("started hang")
    again.wait_for("finished new")
    said = again.stop().out
    assert "first" not in said
    assert "later" not in said


def test_a_lifespan_that_never_ends_does_not_hold_the_process(shop: Shop) -> None:
    shop.commands.application(
        SHOP
        + """

@app.lifespan
def pools():
    yield
    hang()
"""
    )
    running = shop.start(b"first", charge={"stop_timeout": "0"})
    running.wait_for("finished first")
    ended, seconds = timed_stop(running)
    assert ended.code == 1
    assert seconds < 0 + GRACE_S
    ended.line_of(LogEvent.STOP_OVERRUN)
    assert shop.committed() == {0: 1}


def timed_stop(running: Command) -> tuple[Ended, float]:
    started = time.monotonic()
    ended = running.stop()
    return ended, time.monotonic() - started


def test_a_worker_that_stops_by_an_error_drains_the_others_and_ends_it_with_1(shop: Shop) -> None:
    shop.broker.produce("parcels", b"wait", partition=0)
    stop = {"retry": {"attempts": 1, "when_spent": "stop"}}
    running = shop.start(b"fine", charge=stop, ship={"enabled": True})
    running.wait_for("started wait")
    running.wait_for("finished fine")
    shop.broker.produce("orders", b"poison", partition=0)
    failure = running.wait_for_event(
        LogEvent.WORKER_FAILED, worker="charge", error="WorkerStoppedError"
    )
    for datum in ("orders[0]@1", "ValueError", "retry.when_spent"):
        assert datum in failure["message"]
    shop.release()
    ended = running.wait()
    assert ended.code == 1
    assert ended.summary("ship") == {"processed": 1}
    assert ended.summary("charge") == {"processed": 1, "unfinished": 1}
    assert shop.committed() == {0: 1}
    assert shop.committed("parcels", "ship") == {0: 1}


def test_sigusr1_prints_the_windows_and_where_the_running_handlers_stand(shop: Shop) -> None:
    running = shop.start(b"hang", b"fine", charge={"stop_timeout": "0"})
    running.wait_for("finished fine")
    # Said within the call, which is counted when it has returned.
    metrics = f"{address_of(running)}/metrics"
    counted = 'window_consumer_records_processed_total{worker="charge"} 1\n'
    wait_until(lambda: counted in asked(metrics)[1], DEADLINE_S, "a call is counted")
    running.signal(signal.SIGUSR1)
    running.wait_for("time.sleep(1_000_000)")  # the stack's last line
    said = running.said
    assert "in hang" in said
    assert "charge: 1 processed, 0 retried, 0 dead-lettered, " in said
    assert "  orders[0] from 0: [" in said
    assert "1 open, 0 buffered, 0 failed, 4 bytes" in said
    assert "  orders[0]@0 attempt 1 for " in said
    running.signal(signal.SIGUSR1)
    running.wait_for("in hang", times=2)
    assert running.stop().code == 1


@pytest.mark.slow
def test_a_start_cell_that_hovers_is_said_after_half_a_minute(hovering: Command) -> None:
    place: dict[str, Any] = {"topic": "orders", "partition": 0, "offset": 0, "attempt": 1}
    line = hovering.wait_for_event(LogEvent.HEAD_BLOCKED, timeout_s=2 * DEADLINE_S, **place)
    assert "30 s" in line["message"]
    assert "SIGUSR1" in line["message"]
