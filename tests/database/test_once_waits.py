"""Locks that calls with once wait for: their own ids, and what handlers lock."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tests.database.once_shop import QUICK, OnceShop
from tests.logged import fields_of
from tests.waiting import wait_until
from window_consumer import Record
from window_consumer.database.once.once_locks import OnceWaits
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import CallAgain
from window_consumer.model.log_events import LogEvent


@pytest.mark.parametrize("kind", ["function", "batch"])
def test_a_lock_that_the_handler_does_not_get_is_its_failure(
    shop_in_postgres: OnceShop, kind: str
) -> None:
    shop = shop_in_postgres
    once = shop.once()
    shop.run("CREATE TABLE stock (item text)", "INSERT INTO stock VALUES ('left')")
    lock = sa.text("SELECT item FROM stock FOR UPDATE NOWAIT")

    def behave(order: Any) -> None:
        one: Record = order[0] if kind == "batch" else order
        one.session.execute(lock)

    shop.behave = behave
    shop.fill("a")
    with shop.engine.begin() as other:
        other.execute(lock)
        with shop.start(once, kind=kind, **QUICK) as running:
            wait_until(lambda: running.counters["place"].dead_lettered == 1)
    assert shop.calls == [(0, 1), (0, 2), (0, 3)]


def test_a_write_that_sqlite_refuses_the_handler_is_its_failure(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 1)
    shop = OnceShop(embedded, tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")
    once = shop.once()
    other = sa.create_engine(shop.url, connect_args={"timeout": 0.05})

    def behave(_: Record) -> None:
        with other.begin() as connection:  # not the call's, which holds the lock
            connection.execute(sa.insert(shop.orders).values(value="b"))

    shop.behave = behave
    shop.fill("a")
    with shop.start(once, **QUICK) as running:
        wait_until(lambda: running.counters["place"].dead_lettered == 1)
    assert shop.calls == [(0, 1), (0, 2), (0, 3)]
    other.dispose()
    shop.engine.dispose()


@pytest.mark.parametrize("kind", ["function", "batch", "coroutine"])
def test_an_id_that_is_held_for_longer_than_a_stall_costs_attempts(
    shop_in_postgres: OnceShop, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = shop_in_postgres
    url = shop.url.replace("+psycopg", "+asyncpg")
    later = create_async_engine(url, poolclass=sa.NullPool)  # each start has a loop of its own
    once = shop.once(lock_timeout="50ms", engine=later if kind == "coroutine" else shop.engine)
    shop.fill("a", ids=("1",))
    with shop.start(once, kind=kind) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
    shop.fill("a", ids=("1",))
    with shop.engine.begin() as other:
        other.execute(sa.update(once.table).values(record_id="2"))  # while this is open, 1 is held
        other.execute(sa.update(once.table).values(record_id="1"))
        stall = {"after": "1500ms", "action": "report"}
        with shop.start(once, kind=kind, stall=stall, **QUICK) as running:
            wait_until(lambda: running.counters["place"].dead_lettered == 1)
            did = running.counters["place"]
    assert (did.processed, did.deduplicated) == (0, 0)
    assert len(shop.calls) == 1
    line = fields_of(caplog, LogEvent.ONCE_WAITS)  # within 10 s there is one
    assert (line["id"], line["offset"], line["calls"]) == ("1", 1, 1)
    assert 0 < line["waited_s"] < 1.5
    asyncio.run(later.dispose())


def test_waits_are_forgotten_when_they_are_over_and_counted_until_then(shop: OnceShop) -> None:
    waits: list[tuple[int, bool]] = []
    seen = OnceWaits("place", 5.0)
    again = CallAgain(1.0, "held")

    def behave(order: Record) -> None:
        now = time.monotonic()
        waits.append((len(seen), seen.refuse([order], now, again) is again))
        waits.append((len(seen), seen.refuse([order], now - 5.0, again) is again))
        seen.over([order])
        waits.append((len(seen), seen.refuse([order], now - 5.0, again) is again))

    shop.behave = behave
    shop.fill("a")
    with shop.start(shop.once()) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
    assert waits == [(0, True), (1, True), (0, False)]
