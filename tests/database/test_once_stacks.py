"""Stacks of handlers with once begin with the handler's own line."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tests.database.conftest import header
from tests.database.once_shop import DEADLINE_S, OnceShop
from tests.waiting import wait_until
from window_consumer import App, Running
from window_consumer.database import Once

KINDS = ["function", "coroutine", "batch", "batch coroutine"]
ONE_ATTEMPT: dict[str, Any] = {"retry": {"attempts": 1}, "concurrency": 1}


def once_for(shop: OnceShop, kind: str, **given: Any) -> Once:
    if "coroutine" not in kind:
        return shop.once(**given)
    url = shop.url.replace("sqlite:", "sqlite+aiosqlite:").replace("+psycopg:", "+asyncpg:")
    return shop.once(engine=create_async_engine(url, poolclass=sa.NullPool), **given)


def functions(stack: str) -> list[tuple[str, str]]:
    """Return the files and functions of a stack in a report."""
    return re.findall(r'File ".*?([^/"]+)", line \d+, in (\w+)', stack)


def assert_begins_with_the_handler(stack: str) -> None:
    assert functions(stack), stack
    file, function = functions(stack)[0]
    assert file in {"once_shop.py", "test_once_stacks.py"}, stack
    assert function.startswith("place"), stack


def stack_of_dead_letter(shop: OnceShop, running: Running) -> str:
    wait_until(lambda: running.counters["place"].dead_lettered == 1)
    (letter,) = shop.broker.read_all("shop.orders.dlq")
    return (header(letter, "wc-error-stack") or b"").decode()


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_begins_with_the_handler(
    shop: OnceShop,
    kind: str,
    fenced: bool,  # noqa: FBT001 - of a table
) -> None:
    def fail(_: object) -> None:
        raise ValueError("never")

    shop.behave = fail
    shop.fill("a")
    with shop.start(once_for(shop, kind, fenced=fenced), kind=kind, **ONE_ATTEMPT) as running:
        stack = stack_of_dead_letter(shop, running)
    assert_begins_with_the_handler(stack)
    assert functions(stack)[-1] == ("test_once_stacks.py", "fail")


@pytest.mark.parametrize("kind", ["function", "batch"])
def test_a_call_that_hangs_begins_with_the_handler(shop_in_postgres: OnceShop, kind: str) -> None:
    """As doctor shows it, and in the dead letter of the stall."""
    shop = shop_in_postgres
    go_on = threading.Event()
    shop.behave = lambda _: go_on.wait()
    shop.fill("a")
    stall = {"after": "3s"}  # the id is inserted by then, on a slow day, too
    try:
        with shop.start(shop.once(), kind=kind, stall=stall, **ONE_ATTEMPT) as running:
            wait_until(lambda: shop.calls)
            assert_begins_with_the_handler(position(running))
            assert_begins_with_the_handler(stack_of_dead_letter(shop, running))
            go_on.set()
    finally:
        go_on.set()


@pytest.mark.parametrize("kind", ["coroutine", "batch coroutine"])
def test_a_coroutine_that_waits_begins_with_the_handler(
    shop_in_postgres: OnceShop, kind: str
) -> None:
    shop = shop_in_postgres
    app = App("shop")
    once = once_for(shop, kind)
    waiting = threading.Event()

    async def place(_: object) -> None:
        waiting.set()
        await asyncio.Event().wait()

    handler = app.batch_handler if "batch" in kind else app.handler
    handler("orders", group="shop", name="place", once=once)(place)
    shop.fill("a")
    file = shop.file(stall={"after": "1s"}, **ONE_ATTEMPT)
    with app.start(file, start_timeout=DEADLINE_S) as running:
        wait_until(waiting.is_set)
        assert_begins_with_the_handler(position(running))
        assert_begins_with_the_handler(stack_of_dead_letter(shop, running))


def position(running: Running) -> str:
    (worker,) = running.workers
    windows = worker.snapshot().windows
    assert windows is not None
    (call,) = windows.calls
    return worker.places().of(call).stack
