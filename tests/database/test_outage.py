"""A database that is away: calls of ``once`` wait for it, and no attempt is spent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from attrs import frozen

from tests.database.cut_off import CutOff, cut_off
from tests.database.once_shop import OnceShop
from tests.database.once_workers import KINDS, Kind, OnceBench
from tests.logged import lines_of
from tests.waiting import wait_until
from window_consumer import Record, Running
from window_consumer.config.sections.guards import StallConfig
from window_consumer.database.once.outage import CallStage, outage_of
from window_consumer.database.once.outage_rule import KIND
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

ONE_ATTEMPT: dict[str, Any] = {"retry": {"attempts": 1, "on_failure": "overtake"}}
VALUES = [f"{number:03}" for number in range(120)]


@frozen
class CutOffShop:
    """A shop whose database can be cut off."""

    between: CutOff
    shop: OnceShop


@pytest.fixture
def cut_shop(embedded: EmbeddedBroker, tmp_path: Path, database: str) -> Iterator[CutOffShop]:
    embedded.create_topic("orders", 1)
    with cut_off(database) as (between, through):
        shop = OnceShop(embedded, tmp_path, through)
        yield CutOffShop(between, shop)
        shop.engine.dispose()


def kinds_found(running: Running) -> list[str]:
    """Return what ``doctor`` and ``status`` say of the worker."""
    return [each.kind for each in running.snapshots()["place"].findings]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_outage_costs_no_attempt_and_nothing_is_lost_or_repeated(
    kind: Kind,
    embedded: EmbeddedBroker,
    tmp_path: Path,
    database: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    embedded.create_topic("orders", 1)
    with cut_off(database) as (between, through):
        bench = OnceBench(embedded.bootstrap, tmp_path, through, kind)
        bench.fill(*VALUES[:60])
        batch = {"batch": {"max_records": 10, "max_wait": "10ms"}} if kind.is_batch else {}
        with bench.start(**ONE_ATTEMPT, **batch, concurrency=4) as running:
            wait_until(lambda: running.counters["place"].processed >= 1)
            between.cut()
            bench.fill(*VALUES[60:])
            wait_until(lambda: between.refused >= 3)
            assert kinds_found(running) == [KIND]
            between.mend()
            wait_until(lambda: running.counters["place"].finished == len(VALUES))
            did = running.counters["place"]
            assert (did.dead_lettered, did.breaker_opened) == (0, 0)
        bench.engine.dispose()
        assert bench.placed == bench.results == VALUES
        bench.close()
    assert len(lines_of(caplog, LogEvent.ONCE_DATABASE_AWAY)) == 1


def test_an_outage_from_before_the_start_is_waited_for_and_reported_once(
    cut_shop: CutOffShop, caplog: pytest.LogCaptureFixture
) -> None:
    between, shop = cut_shop.between, cut_shop.shop
    once = shop.once()
    shop.fill(*VALUES[:40])
    between.cut()
    with shop.start(once, **ONE_ATTEMPT) as running:
        assert kinds_found(running) == [KIND]
        refused = between.refused
        wait_until(lambda: between.refused >= refused + 3, why="calls meet it, too")
        did = running.counters["place"]
        assert (did.processed, did.retried, did.dead_lettered, did.breaker_opened) == (0, 0, 0, 0)
        between.mend()
        wait_until(lambda: running.counters["place"].finished == 40)
    assert shop.placed == VALUES[:40]
    assert len(lines_of(caplog, LogEvent.ONCE_DATABASE_AWAY)) == 1


def test_a_connection_lost_in_a_call_costs_no_attempt(cut_shop: CutOffShop) -> None:
    between, shop = cut_shop.between, cut_shop.shop
    once = shop.once()

    def behave(_: Record) -> None:
        if len(shop.calls) == 1:
            between.cut()
            between.mend()

    shop.behave = behave
    shop.fill("a")
    with shop.start(once, **ONE_ATTEMPT) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
    assert shop.placed == ["a"]
    assert len(shop.calls) == 2


@pytest.mark.parametrize("kind", ["function", "batch"])
def test_a_commit_whose_answer_is_lost_is_found_by_the_next_call(
    cut_shop: CutOffShop, kind: str
) -> None:
    shop = cut_shop.shop
    once = shop.once()
    shop.behave = lambda _: cut_shop.between.lose_answer()  # that to the commit
    shop.fill("a")
    with shop.start(once, kind=kind, **ONE_ATTEMPT) as running:
        wait_until(lambda: running.counters["place"].finished == 1)
        did = running.counters["place"]
        assert (did.deduplicated, did.dead_lettered) == (1, 0)
    shop.engine.dispose()
    assert shop.placed == ["a"]
    assert len(shop.calls) == 1


@pytest.mark.parametrize("kind", ["function", "batch"])
def test_a_record_whose_calls_keep_losing_the_connection_leaves(
    cut_shop: CutOffShop, kind: str
) -> None:
    between, shop = cut_shop.between, cut_shop.shop
    once = shop.once()

    def behave(order: Any) -> None:
        one: Record = order[0] if kind == "batch" else order
        if one.text() == "bad":
            between.cut()
            between.mend()
            one.session.execute(sa.text("SELECT 1"))

    shop.behave = behave
    shop.fill("bad")
    with shop.start(once, kind=kind, **ONE_ATTEMPT) as running:
        wait_until(lambda: running.counters["place"].dead_lettered == 1)
        shop.fill("good")
        wait_until(lambda: running.counters["place"].processed == 1)
    shop.engine.dispose()
    assert shop.placed == ["good"]
    assert len(shop.calls) == 3


def test_a_host_that_vanishes_is_given_up_before_a_call_stalls(shop_in_postgres: OnceShop) -> None:
    shop = shop_in_postgres
    engine = sa.create_engine(shop.url, connect_args={"connect_timeout": 7})
    shop.once(engine=engine)
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        given = driver.info.get_parameters()
    engine.dispose()
    assert given["connect_timeout"] == "7"
    limits = [int(given[f"keepalives_{name}"]) for name in ("idle", "interval", "count")]
    assert limits[0] + limits[1] * limits[2] < StallConfig().after
    assert int(given["tcp_user_timeout"]) < StallConfig().after * 1000


@pytest.mark.parametrize("stage", CallStage)
def test_a_cancelled_call_has_met_no_outage(stage: CallStage) -> None:
    assert outage_of(asyncio.CancelledError(), stage, lost=True) is None
    assert outage_of(OSError("no route"), stage, lost=True) is not None


def test_what_the_database_refuses_a_handler_is_its_failure(shop_in_postgres: OnceShop) -> None:
    shop = shop_in_postgres
    once = shop.once()
    shop.run("CREATE TABLE paid (item text PRIMARY KEY)", "INSERT INTO paid VALUES ('a')")
    shop.behave = lambda order: order.session.execute(sa.text("INSERT INTO paid VALUES ('a')"))
    shop.fill("a")
    with shop.start(once, **ONE_ATTEMPT) as running:
        wait_until(lambda: running.counters["place"].dead_lettered == 1)
        assert kinds_found(running) == []


def test_a_table_that_has_gone_is_waited_for(shop: OnceShop) -> None:
    once = shop.once()
    shop.fill("a")
    with shop.start(once, **ONE_ATTEMPT) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
        shop.run("ALTER TABLE wc_once RENAME TO gone")
        shop.fill("b", "c")
        wait_until(lambda: kinds_found(running) == [KIND])
        shop.run("ALTER TABLE gone RENAME TO wc_once")
        wait_until(lambda: running.counters["place"].finished == 3)
        assert running.counters["place"].dead_lettered == 0
    assert shop.placed == ["a", "b", "c"]


def test_a_file_that_has_gone_is_waited_for(embedded: EmbeddedBroker, tmp_path: Path) -> None:
    embedded.create_topic("orders", 1)
    folder = tmp_path / "data"
    folder.mkdir()
    shop = OnceShop(embedded, tmp_path, f"sqlite:///{folder / 'shop.db'}")
    once = shop.once(engine=sa.create_engine(shop.url, poolclass=sa.NullPool))
    shop.engine.dispose()
    shop.fill("a")
    with shop.start(once, **ONE_ATTEMPT) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
        away = folder.rename(tmp_path / "away")
        shop.fill("b")
        wait_until(lambda: kinds_found(running) == [KIND])
        away.rename(folder)
        wait_until(lambda: running.counters["place"].finished == 2)
        assert running.counters["place"].dead_lettered == 0
    assert shop.placed == ["a", "b"]
    shop.engine.dispose()


def test_sqlites_lock_is_waited_for_however_long_another_program_holds_it(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 1)
    shop = OnceShop(embedded, tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")
    once = shop.once(lock_timeout="20ms")
    shop.fill("a", "b")
    stall = {"after": "100ms", "action": "report"}
    refused: list[object] = []
    sa.event.listen(shop.engine, "handle_error", refused.append)
    with shop.engine.connect() as other:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        with shop.start(once, stall=stall, **ONE_ATTEMPT) as running:
            wait_until(lambda: len(refused) >= 4)
            other.exec_driver_sql("ROLLBACK")
            wait_until(lambda: running.counters["place"].finished == 2)
            did = running.counters["place"]
            assert (did.dead_lettered, did.retried) == (0, 0), "nothing has failed"
    assert shop.placed == ["a", "b"]
    shop.engine.dispose()
