"""What may go wrong around once: databases, ids, topics and other members."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from confluent_kafka import Producer

from tests.commands import Commands, kafka_of
from tests.database.once_shop import DEADLINE_S, OVERTAKE, QUICK, OnceShop
from tests.logged import lines_of
from tests.waiting import wait_until
from window_consumer import App, Produce, Record
from window_consumer.database import Once
from window_consumer.database.once.startup import OnceWorker, delete_once
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_postgres import RealPostgres


def test_a_record_that_is_redriven_after_it_was_done_has_no_second_effect(shop: OnceShop) -> None:
    once = shop.once()
    shop.fill("a")
    with shop.start(once) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
    (row,) = shop.rows(once.table)
    headers: list[tuple[str, bytes | None]] = [
        ("wc-id", row.record_id.encode()),
        ("wc-orig-topic", b"orders"),
        ("wc-orig-partition", b"0"),
        ("wc-orig-offset", b"0"),
    ]
    copy = NewRecord(b"a", b"k", headers=headers)
    shop.broker.create_topic("shop.orders.retry.now", 1)
    with shop.start(once, retry={"attempts": 1}) as running:
        shop.broker.fill("shop.orders.retry.now", [copy])
        wait_until(lambda: running.counters["place"].deduplicated == 1)
    assert shop.placed == ["a"]
    assert len(shop.calls) == 1


def test_a_connection_killed_inside_a_handler_costs_no_attempt_and_has_no_effect(
    shop_in_postgres: OnceShop,
) -> None:
    shop = shop_in_postgres
    once = shop.once()

    def behave(order: Record) -> None:
        if len(shop.calls) == 1:
            pid = order.session.scalar(sa.text("SELECT pg_backend_pid()"))
            with shop.engine.connect() as other:
                # PostgreSQL shows the same activity until the end of a transaction.
                other.execution_options(isolation_level="AUTOCOMMIT")
                other.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
                wait_until(lambda: pid not in pids(other))

    shop.behave = behave
    shop.fill("a")
    with shop.start(once, retry={"attempts": 1}) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
        assert running.counters["place"].retried == 0, "nothing has failed"
    assert len(shop.calls) == 2
    assert shop.placed == ["a"]


def pids(connection: sa.Connection) -> set[int]:
    return set(connection.scalars(sa.text("SELECT pid FROM pg_stat_activity")))


def test_a_read_only_database_is_refused_at_the_start(shop_in_postgres: OnceShop) -> None:
    shop = shop_in_postgres
    once = shop.once()
    options = {"options": "-c default_transaction_read_only=on"}
    replica = sa.create_engine(shop.url, connect_args=options)
    with pytest.raises(UsageError, match="primary"):
        shop.start(Once(replica))
    replica.dispose()
    assert shop.rows(once.table) == []


def test_a_recreated_topic_suppresses_nothing(shop: OnceShop) -> None:
    once = shop.once()
    for _ in range(2):
        shop.fill("a")
        with shop.start(once) as running:
            wait_until(lambda: running.counters["place"].finished == 1)
            assert running.counters["place"].processed == 1
        shop.broker.delete_topic("orders")
        shop.broker.create_topic("orders", 1)
    first, second = shop.rows(once.table)
    assert first.record_id == second.record_id == "orders/0/0"
    assert first.origin != second.origin
    assert shop.placed == ["a", "a"]


def test_once_is_within_routes_and_ttl_and_around_middleware(shop: OnceShop) -> None:
    once = shop.once()
    app = App("shop")
    seen: list[str] = []

    @app.middleware
    def layer(record: Record, call_next: Callable[[Record], Any]) -> Any:
        seen.append(f"middleware {record.text()}")
        assert record.session.in_transaction()
        assert len(record.session.execute(sa.select(once.table)).all()) == len(seen)
        return call_next(record)

    def is_paid(record: Record) -> bool:
        return record.text() != "free"

    @app.handler("orders", group="shop", name="place", once=once, when=is_paid)
    def place(order: Record) -> None:
        seen.append(f"handler {order.text()}") if order.text() == "never" else None

    shop.fill("free", "paid", "paid", ids=("1", "2", "2"))
    with app.start(
        shop.file(ordering="partition", otherwise="skip", ttl="1h", **OVERTAKE),
        start_timeout=DEADLINE_S,
    ) as running:
        wait_until(lambda: running.counters["place"].finished == 3)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.skipped) == (1, 1, 1)
    assert seen == ["middleware paid"]
    assert {row.record_id for row in shop.rows(once.table)} == {"2"}


def test_one_member_cleans_at_a_time(shop_in_postgres: OnceShop) -> None:
    shop = shop_in_postgres
    once = shop.once()
    config = shop.app(once).plan(shop.file()).workers[0].config
    worker = OnceWorker(once, config)
    name = sa.text("SELECT pg_advisory_xact_lock(hashtext('window-consumer cleaner of wc_once'))")
    with shop.engine.begin() as connection:
        connection.execute(name)
        assert delete_once(worker) is None
    assert delete_once(worker) == 0


@pytest.mark.parametrize("text", ["o'clock", "back\\slash", "50 %s :id", "ü\n☃", "--", "a'); --"])
def test_ids_may_hold_what_sql_means_something_by(shop: OnceShop, text: str) -> None:
    once = shop.once()
    shop.fill("a", "a", ids=(text, text))
    with shop.start(once, ordering="partition", **OVERTAKE) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
        assert running.counters["place"].deduplicated == 1
    assert [row.record_id for row in shop.rows(once.table)] == [text]


def test_the_wait_for_an_id_bounds_no_lock_of_the_handler(shop_in_postgres: OnceShop) -> None:
    shop = shop_in_postgres
    bounds: list[str] = []
    engines = [
        sa.create_engine(shop.url, connect_args={"options": "-c lock_timeout=7s"}, **more)
        for more in ({}, {"isolation_level": "REPEATABLE READ"})  # in one message; on its own
    ]
    for engine in engines:
        once = shop.once(engine=engine)
        shop.behave = lambda order: bounds.append(
            order.session.scalar(sa.text("SHOW lock_timeout"))
        )
        shop.fill("a")
        with shop.start(once) as running:
            wait_until(lambda: running.counters["place"].finished == 1)
        engine.dispose()
    assert bounds == ["7s", "7s"]


def test_results_are_invisible_until_the_row_commits(shop: OnceShop) -> None:
    once = shop.once()
    began, may_end = threading.Event(), threading.Event()

    def behave(order: Record) -> Produce:
        waited = order.session.scalar(sa.select(sa.func.count()).select_from(once.table))
        assert waited == 1  # the id came first
        began.set()
        assert may_end.wait(DEADLINE_S)
        return Produce("invoices", order.key, order.value)

    shop.behave = behave
    shop.fill("a")
    with shop.start(once, **QUICK) as running:
        assert began.wait(DEADLINE_S)
        assert (shop.rows(shop.outbox.table), shop.rows(once.table)) == ([], [])
        may_end.set()
        wait_until(lambda: running.counters["place"].finished == 1)
        assert running.counters["place"].produced == 0
    assert len(shop.rows(shop.outbox.table)) == len(shop.rows(once.table)) == 1
    assert len(shop.calls) == 1


def test_results_do_not_outlive_a_transaction_that_fails_at_its_end(
    shop_in_postgres: OnceShop,
) -> None:
    shop = shop_in_postgres
    once = shop.once()

    def behave(order: Record) -> Produce:
        with contextlib.suppress(sa.exc.DBAPIError):
            order.session.execute(sa.text("SELECT * FROM there_is_no_such_table"))
        return Produce("invoices", order.key, order.value)

    shop.behave = behave
    shop.fill("a")
    with shop.start(once, **QUICK) as running:
        wait_until(lambda: running.counters["place"].dead_lettered == 1)
    assert (shop.rows(shop.outbox.table), shop.rows(once.table), shop.placed) == ([], [], [])


def test_a_record_that_has_expired_leaves_before_once(shop: OnceShop) -> None:
    once = shop.once()
    two_hours_ago = int(time.time() * 1000) - 7_200_000
    producer = Producer({"bootstrap.servers": shop.broker.bootstrap})
    same: dict[str, str | bytes | None] = {"wc-id": b"1"}
    producer.produce("orders", b"late", b"k", headers=same, timestamp=two_hours_ago)
    producer.produce("orders", b"in time", b"k", headers=same)
    assert producer.flush(DEADLINE_S) == 0
    with shop.start(once, ttl="1h", on_expired="drop", **OVERTAKE) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
        did = running.counters["place"]
    assert (did.expired, did.processed, did.deduplicated) == (1, 1, 0)
    assert shop.placed == ["in time"]


def test_a_deadlock_of_two_handlers_costs_no_attempt(shop_in_postgres: OnceShop) -> None:
    shop = shop_in_postgres
    once = shop.once()
    with shop.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE stock (item text PRIMARY KEY, sold int)"))
        connection.execute(sa.text("INSERT INTO stock VALUES ('left', 0), ('right', 0)"))
    both_hold_one = threading.Barrier(2, timeout=DEADLINE_S)

    def behave(order: Record) -> None:
        items = ["left", "right"] if order.text() == "a" else ["right", "left"]
        for number, item in enumerate(items):
            sell = sa.text("UPDATE stock SET sold = sold + 1 WHERE item = :item")
            order.session.execute(sell, {"item": item})
            if number == 0 and len(shop.calls) <= 2:
                both_hold_one.wait()

    shop.behave = behave
    shop.fill("a", "b")
    with shop.start(
        once, retry={"attempts": 1, "on_failure": "overtake"}, concurrency=2
    ) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
        assert running.counters["place"].processed == 2
    assert len(shop.calls) == 3
    assert {attempt for _, attempt in shop.calls} == {1}
    assert shop.placed == ["a", "b"]
    with shop.engine.connect() as connection:
        assert set(connection.scalars(sa.text("SELECT sold FROM stock"))) == {2}


@pytest.mark.usefixtures("postgres")  # skips where there is none
def test_a_database_that_goes_away_and_comes_back_loses_and_repeats_nothing(
    embedded: EmbeddedBroker,
    tmp_path: Path,
    postgres_directory: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    embedded.create_topic("orders", 1)
    with RealPostgres.start(postgres_directory) as own:
        shop = OnceShop(embedded, tmp_path, own.create_database("shop"))
        once = shop.once()
        shop.behave = lambda _: time.sleep(0.01)
        values = [f"{number:03}" for number in range(200)]
        shop.fill(*values)
        with shop.start(once, retry={"attempts": 1, "on_failure": "overtake"}) as running:
            wait_until(lambda: running.counters["place"].processed >= 20)
            own.kill()
            wait_until(lambda: lines_of(caplog, LogEvent.ONCE_DATABASE_AWAY))
            before = running.counters["place"].processed
            assert before < len(values)
            own.restart()
            wait_until(lambda: running.counters["place"].finished == len(values))
            did = running.counters["place"]
        assert (did.processed + did.deduplicated, did.dead_lettered) == (len(values), 0)
        assert shop.placed == values
        shop.engine.dispose()


def test_a_missing_table_ends_the_command_with_2_and_prints_the_ddl(
    commands: Commands, embedded: EmbeddedBroker, url: str
) -> None:
    embedded.create_topic("orders", 1)
    commands.application(
        "import sqlalchemy as sa\n"
        "from window_consumer import App, Record\n"
        "from window_consumer.database import Once\n"
        'app = App("shop")\n'
        f"once = Once(sa.create_engine({url!r}))\n"
        '@app.handler("orders", group="shop", once=once)\n'
        "def place(order: Record) -> None: ...\n"
    )
    commands.configure({"kafka": kafka_of(embedded), "workers": {"place": {}}})
    ended = commands.run("run", "shop:app")
    assert ended.code == 2, ended.said
    assert "CREATE TABLE wc_once (" in ended.err
    assert "Traceback" not in ended.said
