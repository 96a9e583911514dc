"""``async with app.running(...)``: workers beside a block of coroutines."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import DEADLINE_S
from tests.waiting import wait_until
from window_consumer import App, Record
from window_consumer.app.embedding import THREAD
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import BrokerUnavailableError, ConfigError, WorkerStoppedError
from window_consumer.runtime.running import Running

NOBODY = "127.0.0.1:1"


class Shop:
    """An application that notes what it handles; the value "poison" stops its worker."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.app = App("shop")
        self.seen: list[str] = []
        self.file = directory / "workers.yaml"
        worker = {"group": "shop", "retry": {"attempts": 1, "when_spent": "stop"}}
        kafka = {"bootstrap.servers": bootstrap, "consumer": {"fetch.wait.max.ms": 10}}
        self.file.write_text(json.dumps({"kafka": kafka, "workers": {"charge": worker}}))
        self.app.handler("orders", name="charge")(self.charge)

    def charge(self, order: Record) -> None:
        if order.text() == "poison":
            raise ValueError(order)
        self.seen.append(order.text())


@pytest.fixture
def shop(tmp_path: Path, embedded: EmbeddedBroker) -> Shop:
    embedded.create_topic("orders", 1)
    return Shop(tmp_path, embedded.bootstrap)


async def until(what: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_until, what)


async def embedding_has_ended() -> None:
    await until(lambda: all(each.name != THREAD for each in threading.enumerate()))


def test_workers_run_beside_the_block_and_drain_at_its_end(
    shop: Shop, embedded: EmbeddedBroker
) -> None:
    embedded.produce("orders", b"1")

    async def main() -> Running:
        async with shop.app.running(shop.file) as running:
            await until(lambda: shop.seen)
            embedded.produce("orders", b"2")
            await until(lambda: len(shop.seen) == 2)
        assert running.wait(0)
        return running

    running = asyncio.run(main())
    assert running.failure is None
    assert running.counters["charge"].processed == 2
    assert shop.seen == ["1", "2"]


def test_the_loop_goes_on_while_a_start_waits_for_a_broker(tmp_path: Path) -> None:
    shop = Shop(tmp_path, NOBODY)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async def main() -> None:
        ticking = asyncio.create_task(tick())
        with pytest.raises(BrokerUnavailableError):
            async with shop.app.running(shop.file, start_timeout=1.0):
                pytest.fail("it has not started")
        ticking.cancel()
        await embedding_has_ended()

    asyncio.run(main())
    assert ticks > 10


def test_a_start_that_is_cancelled_ends(tmp_path: Path) -> None:
    shop = Shop(tmp_path, NOBODY)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), shop.app.running(shop.file):
                pytest.fail("it has not started")
        await embedding_has_ended()

    asyncio.run(main(), debug=True)


def test_what_starts_although_it_was_given_up_is_stopped(shop: Shop) -> None:
    """A cancellation may come when the start has already succeeded."""
    running: list[Running] = []
    plan, start_plan = shop.app.plan(shop.file), shop.app.start_plan
    entered = threading.Event()

    class Slow(App):
        def start_plan(self, *_: Any, **__: Any) -> Running:
            running.append(start_plan(plan))
            entered.set()
            return running[0]

    slow = Slow("shop")
    slow.handler("orders", name="charge")(shop.charge)

    async def main() -> None:
        async def enter() -> None:
            async with slow.running(shop.file):
                pytest.fail("it was cancelled")

        entering = asyncio.create_task(enter())
        await asyncio.sleep(0)  # it has begun
        while not entered.wait(0.001):  # the loop stands still, so that it has not heard of it
            pass
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert running[0].wait(0)

    asyncio.run(main())
    assert running[0].failure is None


def test_a_mistake_in_the_configuration_is_raised_where_the_block_begins(shop: Shop) -> None:
    async def main() -> None:
        async with shop.app.running(shop.file, overrides=["workers.charge.concurency=2"]):
            pytest.fail("it has not started")

    with pytest.raises(ConfigError):
        asyncio.run(main())


def test_a_failure_cancels_the_block_and_is_raised(shop: Shop, embedded: EmbeddedBroker) -> None:
    embedded.produce("orders", b"poison")

    async def main() -> None:
        async with shop.app.running(shop.file):
            await asyncio.sleep(DEADLINE_S)

    with pytest.raises(WorkerStoppedError):
        asyncio.run(main())


def test_with_on_failure_the_block_goes_on_and_the_failure_is_raised_at_its_end(
    shop: Shop, embedded: EmbeddedBroker
) -> None:
    embedded.produce("orders", b"poison")

    async def main() -> None:
        loop, reported = asyncio.get_running_loop(), asyncio.Event()

        def on_failure(error: BaseException) -> None:
            assert asyncio.get_running_loop() is loop
            failures.append(error)
            reported.set()

        async with shop.app.running(shop.file, on_failure=on_failure):
            await asyncio.wait_for(reported.wait(), DEADLINE_S)
            await asyncio.sleep(0)
            went_on.set()

    went_on = threading.Event()
    failures: list[BaseException] = []
    with pytest.raises(WorkerStoppedError) as raised:
        asyncio.run(main())
    assert went_on.is_set()
    assert failures == [raised.value]


def test_a_cancellation_from_elsewhere_drains_and_stays_one(
    shop: Shop, embedded: EmbeddedBroker
) -> None:
    embedded.produce("orders", b"1")
    running: list[Running] = []

    async def main() -> None:
        async def block() -> None:
            async with shop.app.running(shop.file) as started:
                running.append(started)
                await asyncio.sleep(DEADLINE_S)

        task = asyncio.create_task(block())
        await until(lambda: shop.seen)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert running[0].wait(0)

    asyncio.run(main())
    assert running[0].counters["charge"].processed == 1


def test_an_exception_of_the_block_goes_before_the_failure(
    shop: Shop, embedded: EmbeddedBroker
) -> None:
    embedded.produce("orders", b"poison")

    async def main() -> None:
        failed = asyncio.Event()
        async with shop.app.running(shop.file, on_failure=lambda _: failed.set()):
            await asyncio.wait_for(failed.wait(), DEADLINE_S)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        asyncio.run(main())


def test_stop_from_within_the_block_does_not_interrupt_it(shop: Shop) -> None:
    async def main() -> str:
        async with shop.app.running(shop.file) as running:
            running.stop()
            await until(lambda: running.wait(0))
            return "went on"

    assert asyncio.run(main()) == "went on"


def test_a_start_that_was_given_up_says_so_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The future of the start has an exception that nobody asks for."""
    shop = Shop(tmp_path, NOBODY)

    async def main() -> None:
        entering = asyncio.create_task(shop.app.running(shop.file).__aenter__())
        await asyncio.sleep(0.05)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    asyncio.run(main())
    assert not [each for each in caplog.records if each.name == "asyncio"]
