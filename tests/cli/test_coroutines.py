"""Coroutines under ``window-consumer run``: what ends them."""

from __future__ import annotations

from time import monotonic

import pytest

from tests.commands import DEADLINE_S, Commands, kafka_of
from window_consumer.dlq.dead_letter import read_dead_letter
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
import asyncio
import contextlib
import time
from pathlib import Path

from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop", ordering="key", concurrency=1000)
async def charge(order: Record) -> None:
    print("begins", order.text(), order.attempt, flush=True)
    if order.text() == "hangs":
        try:
            await wait_for_the_bank()
        finally:
            print("ends", order.cancelled, flush=True)
    if order.text() == "refuses":
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
    if order.text() == "blocks":
        while not Path("go on").exists():
            time.sleep(0.01)
        await asyncio.sleep(60)


async def wait_for_the_bank():
    await asyncio.sleep(3600)
"""

OVERTAKE = {"attempts": 3, "on_failure": "overtake"}
BLOCK = {"backoff": "10ms..10ms", "on_failure": "block"}


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    embedded.create_topic("orders", 1)
    commands.application(SHOP)
    return commands


def configure(shop: Commands, embedded: EmbeddedBroker, **worker: object) -> None:
    shop.configure({"kafka": kafka_of(embedded), "workers": {"charge": worker}})


def test_a_call_that_hangs_is_cancelled_and_its_record_leaves_with_the_coroutines_stack(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    configure(shop, embedded, retry=OVERTAKE, stall={"after": "2s"})
    embedded.produce("orders", b"hangs", key=b"k")
    embedded.produce("orders", b"follows", key=b"k")
    worker = shop.start("run", "shop:app")
    worker.wait_for("begins follows 1")
    ended = worker.stop()
    assert ended.code == 0
    assert ended.line_of(LogEvent.CALL_STALLED, topic="orders", offset=0)["ended"]
    assert ended.out.splitlines() == ["begins hangs 1", "ends True", "begins follows 1"]
    assert ended.summary() == {"processed": 1, "dead_lettered": 1}
    (message,) = embedded.read_all("shop.orders.dlq")
    letter = read_dead_letter(message)
    assert letter.reason == "STALLED"
    assert "in wait_for_the_bank" in (letter.error_stack or "")


def test_a_call_that_was_abandoned_before_the_stop_is_not_said_to_run_again(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    configure(shop, embedded, retry=OVERTAKE, stall={"after": "200ms"})
    embedded.produce("orders", b"refuses", key=b"k")
    worker = shop.start("run", "shop:app")
    worker.wait_for_event(LogEvent.CALL_STALLED, abandoned=True, ended=False)
    embedded.produce("orders", b"follows", key=b"other")
    worker.wait_for("begins follows 1")
    ended = worker.stop()
    assert ended.code == 0
    assert ended.summary() == {"processed": 1, "dead_lettered": 1}
    assert ended.lines_of(LogEvent.CALL_OUTLIVED)
    assert not ended.lines_of(LogEvent.CALLS_INTERRUPTED)
    assert not ended.lines_of(LogEvent.CALLS_UNFINISHED)


def test_with_block_it_is_called_again_and_those_behind_it_wait(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    configure(shop, embedded, retry=BLOCK, stall={"after": "2s"}, stop_timeout="100ms")
    embedded.produce("orders", b"hangs", key=b"k")
    embedded.produce("orders", b"follows", key=b"k")
    worker = shop.start("run", "shop:app")
    worker.wait_for("begins hangs 3")
    ended = worker.stop()
    assert "follows" not in ended.out
    assert (summary := ended.summary())["unfinished"] == 2
    assert "dead_lettered" not in summary


HANGS = """
import asyncio
import time

from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop")
{form} charge(order: Record) -> None:
    print("begins", order.attempt, flush=True)
    {sleep}(3600)
"""


@pytest.mark.parametrize(
    ("form", "sleep", "pool"),
    [("async def", "await asyncio.sleep", "threads"), ("def", "time.sleep", "processes")],
)
def test_with_retry_it_is_called_again_before_it_climbs(
    form: str, sleep: str, pool: str, shop: Commands, embedded: EmbeddedBroker
) -> None:
    shop.application(HANGS.format(form=form, sleep=sleep))
    retry = {"attempts": 2, "backoff": "10ms..10ms", "levels": ["1d"]}
    stall = {"after": "500ms", "action": "retry"}
    configure(shop, embedded, retry=retry, stall=stall, pool=pool, concurrency=1)
    embedded.produce("orders", b"hangs")
    worker = shop.start("run", "shop:app")
    worker.wait_for("begins 2")
    until = monotonic() + DEADLINE_S
    while not embedded.read_all("shop.orders.retry.1d"):
        assert monotonic() < until
    ended = worker.stop()
    assert ended.out.splitlines() == ["begins 1", "begins 2"]
    assert ended.summary() == {"retried": 1, "moved": 1, "unfinished": 1}


def test_retry_is_refused_where_a_call_cannot_be_ended(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    shop.application(HANGS.format(form="def", sleep="time.sleep"))
    configure(shop, embedded, stall={"action": "retry"})
    ended = shop.run("check", "shop:app")
    assert ended.code == 2
    assert "workers.charge.stall.action" in ended.err


def test_at_the_stop_what_still_runs_is_cancelled_and_its_record_stays_unfinished(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    configure(shop, embedded, retry=OVERTAKE, stop_timeout="200ms")
    embedded.produce("orders", b"hangs", key=b"k")
    worker = shop.start("run", "shop:app")
    worker.wait_for("begins hangs 1")
    ended = worker.stop()
    assert ended.code == 0
    assert ended.out.splitlines() == ["begins hangs 1", "ends True"]
    assert "orders[0]@0" in ended.line_of(LogEvent.CALLS_INTERRUPTED, calls=1)["message"]
    assert ended.summary() == {"unfinished": 1}
    assert not ended.lines_of(LogEvent.CALL_OUTLIVED)
    assert not ended.lines_of(LogEvent.CALLS_OUTLIVED)


def test_a_call_that_blocks_the_loop_is_shown_and_cancelled_when_it_has_given_it_back(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    configure(shop, embedded, retry=OVERTAKE, stall={"after": "1s"})
    embedded.produce("orders", b"blocks", key=b"k")
    worker = shop.start("run", "shop:app")
    worker.wait_for("time.sleep(0.01)")
    (shop.directory / "go on").touch()
    worker.wait_for_event(LogEvent.CALL_FAILED)
    ended = worker.stop()
    assert ended.summary() == {"dead_lettered": 1}
    (message,) = embedded.read_all("shop.orders.dlq")
    assert "event loop" in (read_dead_letter(message).error_message or "")
