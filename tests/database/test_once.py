"""Effects in a database happen once for each record, on the embedded broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tests.database.once_shop import DEADLINE_S, OVERTAKE, QUICK, OnceShop
from tests.golden_texts import Golden
from tests.waiting import wait_until
from window_consumer import App, PartialFailure, Produce, Record
from window_consumer.database import Once
from window_consumer.database.once.once import OnceValues
from window_consumer.database.once.startup import OnceWorker, delete_once
from window_consumer.database.once.tables import MAX_DELETED
from window_consumer.model.errors import UsageError


def test_a_repeated_id_has_one_effect_and_no_second_call(shop: OnceShop) -> None:
    once = shop.once()
    shop.fill("a", "b", "a", ids=("1", "2", "1"))
    with shop.start(once, ordering="partition", **OVERTAKE) as running:
        wait_until(lambda: running.counters["place"].finished == 3)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.skipped, did.retried) == (2, 1, 0, 0)
    assert shop.placed == ["a", "b"]
    assert shop.calls == [(0, 1), (1, 1)]
    assert {(row.group_name, row.worker, row.record_id) for row in shop.rows(once.table)} == {
        ("shop", "place", "1"),
        ("shop", "place", "2"),
    }


def test_an_exception_leaves_neither_effect_nor_id_and_climbs_the_ladder(shop: OnceShop) -> None:
    once = shop.once()

    def fail_twice(order: Record) -> None:
        if order.attempt < 3:
            raise ValueError("not yet")

    shop.behave = fail_twice
    shop.fill("a")
    with shop.start(once, **QUICK) as running:
        wait_until(lambda: running.counters["place"].finished == 1)
        assert running.counters["place"].retried == 2
    assert shop.calls == [(0, 1), (0, 2), (0, 3)]
    assert shop.placed == ["a"]
    assert len(shop.rows(once.table)) == 1


def test_workers_with_a_loop_each_share_an_asynchronous_once(shop: OnceShop) -> None:
    engine = create_async_engine(shop.url.replace("sqlite:", "sqlite+aiosqlite:"), pool_size=2)
    once = shop.once(engine=engine)
    names = ("left", "right")
    app = App("shop")

    async def place(order: Record) -> None:
        await order.session.execute(sa.insert(shop.orders).values(value=order.text()))
        await asyncio.sleep(0.001)

    for name in names:
        app.handler("orders", group=name, name=name, once=once)(place)
    shop.fill(*map(str, range(40)))
    file = shop.directory / "workers.yaml"
    worker = {"concurrency": 8, "ordering": "unordered", "retry": {"attempts": 1}}
    kafka = {"bootstrap.servers": shop.broker.bootstrap}
    file.write_text(json.dumps({"kafka": kafka, "workers": dict.fromkeys(names, worker)}))
    with app.start(file, start_timeout=DEADLINE_S) as running:
        wait_until(lambda: all(running.counters[name].finished == 40 for name in names))
        assert [running.counters[name].processed for name in names] == [40, 40]
    assert shop.placed == sorted(2 * [str(number) for number in range(40)])
    asyncio.run(engine.dispose())


def test_a_dead_letter_leaves_no_trace_in_the_database(shop: OnceShop) -> None:
    once = shop.once()

    def fail(_: Record) -> None:
        raise ValueError("never")

    shop.behave = fail
    shop.fill("a")
    with shop.start(once, **QUICK) as running:
        wait_until(lambda: running.counters["place"].dead_lettered == 1)
    assert (shop.placed, shop.rows(once.table)) == ([], [])


def test_coroutines_have_an_async_session(shop: OnceShop) -> None:
    url = shop.url.replace("sqlite:", "sqlite+aiosqlite:")
    engine = create_async_engine(url)
    once = shop.once(engine=engine)
    shop.behave = lambda order: Produce("invoices", order.key, order.value)
    shop.fill("a", "b", "a", ids=("1", "2", "1"))
    with shop.start(once, kind="coroutine", ordering="partition", **OVERTAKE) as running:
        wait_until(lambda: running.counters["place"].finished == 3)
        assert running.counters["place"].deduplicated == 1
    assert shop.placed == ["a", "b"]
    assert len(shop.rows(shop.outbox.table)) == 2
    asyncio.run(engine.dispose())


def test_results_are_rows_of_the_same_transaction_with_ids_of_their_own(shop: OnceShop) -> None:
    once = shop.once()

    def produce(order: Record) -> list[Produce]:
        if order.attempt == 1:
            order.session.flush()
            raise ValueError("after the results were made")
        header = {"wc-id": "inherited", "a": "b"}
        return [Produce("invoices", order.key, b"%d" % n, headers=header) for n in range(2)]

    shop.behave = produce
    shop.fill("a", ids=("17",))
    with shop.start(once, **QUICK) as running:
        wait_until(lambda: running.counters["place"].finished == 1)
        assert running.counters["place"].produced == 0
    rows = sorted(shop.rows(shop.outbox.table), key=lambda row: row.seq)
    assert [row.payload for row in rows] == [b"0", b"1"]
    assert [row.headers for row in rows] == [[["a", "b"]]] * 2
    assert len({row.id for row in rows}) == 2


def test_results_of_a_record_that_once_has_forgotten_replace_rows_that_are_kept(
    shop: OnceShop,
) -> None:
    """``outbox.keep`` may be longer than ``once.keep``, and their ids are the same."""
    once = shop.once()
    shop.behave = lambda order: Produce("invoices", order.key, b"%d" % len(shop.calls))
    shop.fill("a", ids=("1",))
    table = shop.outbox.table
    with shop.start(once, retry={"attempts": 1}) as running:
        wait_until(lambda: running.counters["place"].finished == 1)
    (first,) = shop.rows(table)
    with shop.engine.begin() as connection:
        connection.execute(sa.update(table).values(published_at=sa.func.current_timestamp()))
        connection.execute(sa.delete(once.table))
    shop.fill("a", ids=("1",))
    with shop.start(once, retry={"attempts": 1}) as running:
        wait_until(lambda: running.counters["place"].finished == 1)
        assert running.counters["place"].processed == 1
    (again,) = shop.rows(table)
    assert (again.id, again.payload, again.published_at) == (first.id, b"2", None)


def test_ten_thousand_results_are_one_transaction(shop: OnceShop) -> None:
    once = shop.once()
    shop.behave = lambda _: [Produce("invoices", "k", str(n)) for n in range(10_000)]
    shop.fill("a")
    with shop.start(once) as running:
        wait_until(lambda: running.counters["place"].finished == 1)
    with shop.engine.connect() as connection:
        count = sa.select(sa.func.count()).select_from(shop.outbox.table)
        assert connection.scalar(count) == 10_000


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_a_handler_cannot_end_the_transaction(shop: OnceShop, end: str) -> None:
    once = shop.once()
    raised: list[str] = []

    def behave(order: Record) -> None:
        try:
            getattr(order.session, end)()
        except Exception as error:
            raised.append(type(error).__name__)

    shop.behave = behave
    shop.fill("a")
    with shop.start(once) as running:
        wait_until(lambda: running.counters["place"].finished == 1)
    assert raised == ["SessionOwnedError"]
    assert shop.placed == ["a"]


def test_a_statement_that_failed_unnoticed_is_no_success(shop: OnceShop) -> None:
    once = shop.once()

    def behave(order: Record) -> None:
        with contextlib.suppress(sa.exc.DBAPIError):
            order.session.execute(sa.text("SELECT * FROM there_is_no_such_table"))

    shop.behave = behave
    shop.fill("a")
    with shop.start(once, **QUICK) as running:
        wait_until(lambda: running.counters["place"].finished == 1)
        did = running.counters["place"]
    stays = shop.engine.dialect.name == "sqlite"  # where a failed statement ends nothing
    assert (did.processed, did.dead_lettered) == ((1, 0) if stays else (0, 1))
    assert bool(shop.placed) is bool(shop.rows(once.table)) is stays


def wait_for_connections(shop: OnceShop, count: int) -> None:
    """Wait until so many more transactions have begun."""
    begun: list[object] = []
    sa.event.listen(shop.engine, "checkout", lambda *given: begun.append(given))
    wait_until(lambda: len(begun) >= count, DEADLINE_S)


def test_a_second_caller_waits_and_comes_again_without_an_attempt(shop: OnceShop) -> None:
    once = shop.once(lock_timeout="100ms")
    begun, may_end = threading.Event(), threading.Event()

    def behave(_: Record) -> None:
        begun.set()
        assert may_end.wait(DEADLINE_S)

    shop.behave = behave
    shop.fill("a", "a", ids=("1", "1"))
    with shop.start(once, concurrency=2, retry={"attempts": 1}) as running:
        assert begun.wait(DEADLINE_S)
        wait_for_connections(shop, 3)  # the second one comes again and again
        assert running.counters["place"].finished == 0
        may_end.set()
        wait_until(lambda: running.counters["place"].finished == 2)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.dead_lettered) == (1, 1, 0)
    assert len(shop.calls) == 1
    assert shop.placed == ["a"]


def test_who_waited_is_called_when_the_first_fails_and_it_is_its_first_attempt(
    shop: OnceShop,
) -> None:
    once = shop.once(lock_timeout="100ms")
    begun, may_end = threading.Event(), threading.Event()

    def behave(order: Record) -> None:
        if not begun.is_set():
            begun.set()
            assert may_end.wait(DEADLINE_S)
            raise ValueError(order.offset)

    shop.behave = behave
    shop.fill("a", "a", ids=("1", "1"))
    retry = {"attempts": 1}
    with shop.start(once, concurrency=2, retry=retry) as running:
        assert begun.wait(DEADLINE_S)
        wait_for_connections(shop, 2)  # the second one has waited for its 0.1 s
        may_end.set()
        wait_until(lambda: running.counters["place"].finished == 2)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.dead_lettered) == (1, 0, 1)
    assert [attempt for _, attempt in shop.calls] == [1, 1]


@pytest.mark.parametrize("kind", ["batch", "batch of a coroutine"])
def test_a_batch_holds_only_new_ids_and_is_called_again_without_those_that_failed(
    shop: OnceShop, kind: str
) -> None:
    engine: Any = shop.engine
    if kind != "batch":
        engine = create_async_engine(shop.url.replace("sqlite:", "sqlite+aiosqlite:"))
    once = shop.once(engine=engine)
    with shop.engine.begin() as connection:
        connection.execute(sa.insert(shop.orders).values(value="b"))
    lists: list[list[str]] = []

    def behave(orders: list[Record]) -> None:
        lists.append([order.text() for order in orders])
        bad = [order for order in orders if order.text() == "bad"]
        if bad:
            raise PartialFailure(bad)

    shop.behave = behave
    shop.fill("a", "bad", "a", "c", ids=("1", "2", "1", "3"))
    batch = {"max_records": 4, "min_records": 4, "max_wait": "10s"}
    with shop.start(once, kind=kind, batch=batch, retry={"attempts": 1}) as running:
        wait_until(lambda: running.counters["place"].finished == 4)
        did = running.counters["place"]
    assert lists == [["a", "bad", "c"], ["a", "c"]]
    assert (did.processed, did.deduplicated, did.dead_lettered) == (2, 1, 1)
    assert shop.placed == ["a", "b", "c"]
    if kind != "batch":
        asyncio.run(engine.dispose())


def test_by_takes_the_id_from_the_record_and_an_empty_one_is_fatal(shop: OnceShop) -> None:
    once = shop.once(by=lambda order: order.text().partition("-")[2])
    shop.fill("a-1", "b-1", "c-")
    with shop.start(once, ordering="partition", retry={"on_failure": "overtake"}) as running:
        wait_until(lambda: running.counters["place"].finished == 3)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.dead_lettered) == (1, 1, 1)
    assert did.dead_by == {"FATAL": 1}
    assert shop.placed == ["a-1"]


def test_an_id_with_nul_and_a_long_one_are_ids(shop: OnceShop) -> None:
    once = shop.once()
    ids = ("a\0b", "x" * 301, "a\0b", "x" * 301)
    shop.fill("a", "b", "c", "d", ids=ids)
    with shop.start(once, ordering="partition", **OVERTAKE) as running:
        wait_until(lambda: running.counters["place"].finished == 4)
        assert running.counters["place"].deduplicated == 2
    assert shop.placed == ["a", "b"]


def returns_records(order: Record) -> list[Produce]:
    return [Produce("invoices", order.key, order.value)]


def test_results_without_an_outbox_are_refused_at_the_start(shop: OnceShop) -> None:
    app = App("shop")
    app.handler("orders", group="shop", name="place", once=shop.once(outbox=None))(returns_records)
    with pytest.raises(UsageError, match="outbox=Outbox"):
        app.plan(shop.file())


def test_results_without_an_outbox_and_without_annotation_fail_their_record(shop: OnceShop) -> None:
    shop.behave = lambda order: Produce("invoices", order.key, order.value)
    shop.fill("a")
    with shop.start(shop.once(outbox=None), retry={"attempts": 1}) as running:
        wait_until(lambda: running.counters["place"].dead_lettered == 1)
    assert shop.placed == []


def test_engines_that_do_not_fit_the_handler_are_refused(shop: OnceShop, golden: Golden) -> None:
    url = shop.url.replace("sqlite:", "sqlite+aiosqlite:")
    once = shop.once(engine=create_async_engine(url))
    with pytest.raises(UsageError, match="create_engine"):
        shop.app(once).plan(shop.file())
    with pytest.raises(UsageError, match="create_async_engine"):
        shop.app(shop.once(), "coroutine").plan(shop.file())
    with golden.raises(UsageError):
        shop.app(shop.once()).plan(shop.file(pool="processes"))


def test_a_missing_table_and_one_with_other_columns_are_refused_with_the_ddl(
    shop: OnceShop,
) -> None:
    once = Once(shop.engine, table="wc_absent")
    with pytest.raises(UsageError, match="CREATE TABLE wc_absent") as refused:
        shop.start(once)
    with shop.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE wc_other (id text)"))
    with pytest.raises(UsageError, match="other columns"):
        shop.start(Once(shop.engine, table="wc_other"))
    with shop.engine.begin() as connection:
        for statement in str(refused.value).partition("\n")[2].split(";"):
            if statement.strip():
                connection.execute(sa.text(statement))
    shop.fill("a")
    with shop.start(once) as running:
        wait_until(lambda: running.counters["place"].processed == 1)


def test_a_pool_smaller_than_the_concurrency_is_warned_of_with_both_numbers(
    shop: OnceShop, caplog: pytest.LogCaptureFixture
) -> None:
    engine = sa.create_engine(shop.url, pool_size=2, max_overflow=1)
    with shop.start(shop.once(engine=engine), concurrency=4):
        pass
    (warning,) = [r for r in caplog.records if getattr(r, "event", "") == "once.pool_too_small"]
    text = warning.getMessage()
    assert text.startswith("place: ")
    assert re.findall(r"\d+", text)[:2] == ["3", "4"]
    engine.dispose()


def test_the_cleaner_deletes_old_ids_of_its_worker_only(shop: OnceShop) -> None:
    once = shop.once()
    old = datetime.now(UTC) - timedelta(days=16)
    rows = [
        {"group_name": "shop", "worker": worker, "origin": "orders:0", "record_id": str(n)}
        for worker, count in (("place", MAX_DELETED + 1), ("other", 1))
        for n in range(count)
    ]
    new = {**rows[0], "record_id": "new"}
    with shop.engine.begin() as connection:
        connection.execute(sa.insert(once.table), [{**row, "done_at": old} for row in rows])
        connection.execute(sa.insert(once.table), [new])
    config = shop.app(once).plan(shop.file()).workers[0].config
    worker = OnceWorker(once, config)
    assert [delete_once(worker) for _ in range(3)] == [MAX_DELETED, 1, 0]
    left = {(row.worker, row.record_id) for row in shop.rows(once.table)}
    assert left == {("other", "0"), ("place", "new")}


def test_the_file_replaces_values_of_the_decorator(shop: OnceShop) -> None:
    once = shop.once(keep="1h", lock_timeout="5s")
    file = shop.file(once={"keep": "2h", "fenced": True})
    config = shop.app(once).plan(file).workers[0].config
    assert once.values_for(config) == OnceValues(7200.0, 5.0, fenced=True)


def test_a_fence_grows_with_each_assignment(shop: OnceShop) -> None:
    once = shop.once(fenced=True)
    fences: list[int] = []
    shop.behave = lambda order: fences.append(order.fence)
    for number in range(2):
        shop.fill(str(number))
        with shop.start(once) as running:
            wait_until(lambda: running.counters["place"].processed == 1)
    assert fences == [1, 2]
    assert shop.placed == ["0", "1"]


def test_routes_of_a_worker_share_a_fence(shop: OnceShop) -> None:
    same, other_engine = shop.once(fenced=True), sa.create_engine(shop.url)
    onces = [same, same, shop.once(engine=other_engine, fenced=True)]
    app = App("shop")
    fences: set[int] = set()

    def place(order: Record) -> None:
        fences.add(order.fence)
        order.session.execute(sa.insert(shop.orders).values(value=order.text()))

    for number, once in enumerate(onces):
        when = partial(_begins_with, str(number))
        app.handler("orders", group="shop", name=f"of-{number}", once=once, when=when)(place)
    values = [f"{number % 3} {number:02}" for number in range(30)]
    shop.fill(*values)
    routes = {"handler": ["of-0", "of-1", "of-2"], "otherwise": "skip", "ordering": "partition"}
    with app.start(shop.file(**routes, **OVERTAKE), start_timeout=DEADLINE_S) as running:
        wait_until(lambda: running.counters["place"].finished == len(values))
        assert running.counters["place"].processed == len(values)
    assert shop.placed == sorted(values)
    assert fences == {1}
    other_engine.dispose()


def _begins_with(text: str, order: Record) -> bool:
    return order.text().startswith(text)


def test_a_deadlock_and_a_serialization_failure_are_no_attempts(shop_in_postgres: OnceShop) -> None:
    shop = shop_in_postgres
    once = shop.once()
    states = ["40P01", "40001"]

    def behave(order: Record) -> None:
        if states:
            raise_ = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{states.pop()}'; END $$"
            order.session.execute(sa.text(raise_))

    shop.behave = behave
    shop.fill("a")
    with shop.start(once, retry={"attempts": 1}) as running:
        wait_until(lambda: running.counters["place"].finished == 1)
        assert running.counters["place"].processed == 1
    assert [attempt for _, attempt in shop.calls] == [1, 1, 1]
    assert shop.placed == ["a"]


def test_a_copy_in_a_retry_topic_has_the_id_of_its_first_delivery(shop: OnceShop) -> None:
    once = shop.once()
    ids: list[str] = []

    def behave(order: Record) -> None:
        ids.append(order.id)
        if len(ids) == 1:
            raise ValueError("once")

    shop.behave = behave
    shop.fill("a")
    retry = {"attempts": 1, "levels": ["100ms"], "on_failure": "overtake"}
    with shop.start(once, retry=retry) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
    assert ids == ["orders/0/0"] * 2
    (row,) = shop.rows(once.table)
    assert (row.record_id, row.origin.partition(":")[0]) == ("orders/0/0", "orders")
    assert row.origin.partition(":")[2] != f"{0:016x}"
