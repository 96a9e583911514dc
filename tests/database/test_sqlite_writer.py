"""SQLite has one writer at a time: who holds its lock is said where others wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.database.once_shop import OVERTAKE, OnceShop
from tests.logged import lines_of
from tests.waiting import wait_until
from window_consumer.database import Once
from window_consumer.database.once.writer import LONG_S, QUIET_S, WAITED_S, WriterTurns
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.records import make_record


@pytest.fixture
def shop_in_sqlite(embedded: EmbeddedBroker, tmp_path: Path) -> Iterator[OnceShop]:
    embedded.create_topic("orders", 1)
    shop = OnceShop(embedded, tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")
    yield shop
    shop.engine.dispose()


@pytest.mark.parametrize("kind", ["function", "batch"])
def test_the_call_that_others_wait_for_is_named(
    shop_in_sqlite: OnceShop, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = shop_in_sqlite
    go_on = threading.Event()

    def hold(_: object) -> None:
        go_on.wait()

    shop.behave = hold
    shop.fill("a", "b", ids=("1", "2"))
    batch = {"batch": {"max_records": 1}} if kind == "batch" else {}
    worker = {"ordering": "unordered", "concurrency": 2, **batch, **OVERTAKE}
    try:
        with shop.start(shop.once(lock_timeout="1s"), kind=kind, **worker) as running:
            wait_until(lambda: lines_of(caplog, LogEvent.ONCE_HOLDS_LOCK))
            wait_until(lambda: lines_of(caplog, LogEvent.ONCE_WAITS))
            go_on.set()
            wait_until(lambda: running.counters["place"].finished == 2)
    finally:
        go_on.set()
    said = vars(lines_of(caplog, LogEvent.ONCE_HOLDS_LOCK)[0])
    first = shop.calls[0][0]
    assert (said["offset"], said["id"]) == (first, str(first + 1))
    assert said["held_s"] >= WAITED_S
    waits = vars(lines_of(caplog, LogEvent.ONCE_WAITS)[0])
    assert waits["id"] == str(2 - first)
    assert shop.placed == ["a", "b"]


def test_a_call_that_holds_the_lock_for_long_is_named_even_if_no_call_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Other programs may wait, of which SQLite tells nothing. No more than a line in 10 s."""
    turns = WriterTurns()
    turn = turns.wait("place", make_record("orders", offset=7), "17")
    turn.since = time.monotonic() - WAITED_S - 0.1
    turns.check()
    assert lines_of(caplog, LogEvent.ONCE_HOLDS_LOCK) == []
    turn.since = time.monotonic() - LONG_S
    turns.check()
    turns.check()
    (line,) = lines_of(caplog, LogEvent.ONCE_HOLDS_LOCK)
    said = vars(line)
    assert (said["offset"], said["id"], said["waiting"]) == (7, "17", 0)
    assert "17" in turns.holder()
    turns.over(turn)
    assert "17" not in turns.holder()
    assert QUIET_S > LONG_S > WAITED_S


def test_a_call_that_others_wait_for_is_named_sooner(caplog: pytest.LogCaptureFixture) -> None:
    turns = WriterTurns()
    turn = turns.wait("place", make_record("orders", offset=7), "17")
    turn.since = time.monotonic() - WAITED_S
    turns.wait("place", make_record("orders", offset=8), "18")
    turns.check()
    (line,) = lines_of(caplog, LogEvent.ONCE_HOLDS_LOCK)
    said = vars(line)
    assert (said["offset"], said["id"], said["waiting"]) == (7, "17", 1)


def test_only_sqlite_has_one_writer(shop: OnceShop) -> None:
    is_sqlite = shop.engine.dialect.name == "sqlite"
    once = Once(shop.engine)
    assert (once.writers is not None) == is_sqlite
