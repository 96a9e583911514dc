"""Coroutines as handlers in tests without Kafka: on the test's thread, one call after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.golden_texts import Golden
from tests.testing.shops import config
from window_consumer import App, Fatal, Record, RetryLater, Skip, UsageError, current_record
from window_consumer.testing import (
    DEAD_LETTERED,
    DONE,
    MOVED,
    RETRYING,
    SKIPPED,
    SentState,
    TestApp,
)

GROUPED = {
    "skip in a group": Skip(),
    "fatal in a group": Fatal("no"),
    "later in a group": RetryLater(5),
}


async def raising(error: Exception) -> None:
    raise error


class Shop:
    """An application of coroutines that notes what happens."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.seen: list[Any] = []
        self.app.lifespan(self.session)
        self.app.middleware(self.watch)
        self.app.handler("orders", group="shop")(self.charge)

    async def session(self) -> AsyncIterator[asyncio.AbstractEventLoop]:
        self.seen.append("enter")
        yield asyncio.get_running_loop()
        self.seen.append("leave")

    async def watch(self, record: Record, call_next: Any) -> object:
        try:
            return await call_next(record)
        except Exception as error:
            self.seen.append(type(error).__name__)
            raise

    async def charge(self, order: Any, record: Record) -> None:
        assert record.state is asyncio.get_running_loop()
        assert threading.current_thread() is threading.main_thread()
        await asyncio.sleep(0)
        assert current_record() is not None
        (what,) = order
        self.seen.append(what)
        if what == "skip":
            raise Skip
        if what == "fail":
            raise ValueError(order)
        if what == "cancelled":
            raise asyncio.CancelledError
        if what in GROUPED:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(raising(GROUPED[what]))

    def run(self, **worker: Any) -> TestApp:
        return TestApp(self.app, config(charge=worker))


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        ("skip in a group", SKIPPED),
        ("fatal in a group", DEAD_LETTERED),
        ("later in a group", RETRYING),
    ],
)
def test_what_one_task_of_a_group_raises_means_what_it_always_means(
    what: str, outcome: SentState
) -> None:
    shop = Shop()
    with shop.run(retry={"attempts": 2, "backoff": "1s..1m"}) as wc_app:
        result = wc_app.send("orders", [what])
        assert result.outcome is outcome
        wc_app.advance("4s")
        assert result.attempts == 1  # RetryLater asks for more than the first backoff
        assert [letter.reason for letter in wc_app.dead_letters] == ["FATAL"] * (
            outcome is DEAD_LETTERED
        )


def test_coroutines_their_middleware_and_their_lifespan_run() -> None:
    shop = Shop()
    with shop.run() as wc_app:
        assert wc_app.send("orders", [1]).outcome is DONE
        assert wc_app.send("orders", ["skip"]).outcome is SKIPPED
    assert shop.seen == ["enter", 1, "skip", "Skip", "leave"]


def test_what_a_coroutine_raises_climbs_the_ladder() -> None:
    shop = Shop()
    with shop.run(retry={"attempts": 2, "backoff": "1s..1s", "levels": ["10m"]}) as wc_app:
        failing = wc_app.send("orders", ["fail"])
        wc_app.advance("1s")
        assert (failing.outcome, failing.attempts) == (MOVED, 2)
        wc_app.advance("11m")
        assert failing.outcome is DEAD_LETTERED
        assert isinstance(failing.error, ValueError)
        assert failing.copy is not None
        stack = failing.copy.error_stack or ""
        assert stack.index("in watch") < stack.index("in charge")
        assert "asyncio" not in stack
        assert "window_consumer/runtime" not in stack


def test_a_coroutine_that_cancels_itself_has_failed() -> None:
    shop = Shop()
    with shop.run(retry={"attempts": 1}) as wc_app:
        result = wc_app.send("orders", ["cancelled"])
        assert result.outcome is DEAD_LETTERED
        assert isinstance(result.error, asyncio.CancelledError)


def test_within_a_coroutine_it_says_that_one_thread_cannot_wait_for_both(golden: Golden) -> None:
    async def test() -> None:
        with Shop().run() as wc_app:
            wc_app.send("orders", [1])

    with golden.raises(UsageError):
        asyncio.run(test())
