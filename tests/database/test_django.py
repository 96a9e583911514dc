"""The outbox and ``once`` on Django's own connections and transactions."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from django.db import IntegrityError, OperationalError, connections, transaction

from tests.database.conftest import arrived, header
from tests.database.django_shop import DjangoShop, models, sqlalchemy_outbox
from tests.waiting import wait_until
from window_consumer import App, Produce, Record
from window_consumer.database.dialects.dialect import is_lock_timeout
from window_consumer.database.django import fresh_connections, outbox_model
from window_consumer.database.django_settings import url_of_alias
from window_consumer.database.outbox.wakeup import WakeUp
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import UsageError
from window_consumer.testing import TestApp

QUICK: dict[str, Any] = {"ordering": "unordered", "retry": {"attempts": 3, "backoff": "10ms..10ms"}}


@pytest.fixture
def shop(embedded: EmbeddedBroker, tmp_path: Path, url: str) -> Iterator[DjangoShop]:
    embedded.create_topic("orders", 1)
    shop = DjangoShop(embedded, tmp_path, url)
    yield shop
    shop.close()


@pytest.fixture
def in_sqlite(embedded: EmbeddedBroker, tmp_path: Path) -> Iterator[DjangoShop]:
    embedded.create_topic("orders", 1)
    shop = DjangoShop(embedded, tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")
    yield shop
    shop.close()


@pytest.fixture
def in_django_postgres(
    embedded: EmbeddedBroker, tmp_path: Path, database: str
) -> Iterator[DjangoShop]:
    embedded.create_topic("orders", 1)
    shop = DjangoShop(embedded, tmp_path, database)
    yield shop
    shop.close()


def test_a_handlers_changes_its_id_and_its_results_are_one_transaction(shop: DjangoShop) -> None:
    attempts: list[int] = []

    def behave(order: Record) -> Produce:
        attempts.append(order.attempt)
        models.Outbox.add("placed", b"k", "from the handler", using=shop.alias)
        if order.attempt == 1:
            raise ValueError("once more")
        return Produce("placed", b"k", b"result")

    shop.behave = behave
    shop.fill("a", "a", "b", ids=("1", "1", "2"))
    with shop.start(concurrency=1, **QUICK) as running:
        wait_until(lambda: running.counters["place"].finished == 3)
        assert running.counters["place"].deduplicated == 1
    assert set(attempts) == {1, 2}
    assert shop.placed == ["a", "b"]
    assert shop.ids() == 2
    assert sorted(bytes(each.payload) for each in shop.rows()) == [
        *(b"from the handler", b"from the handler", b"result", b"result")
    ]


def test_the_connections_of_slots_are_closed_when_the_worker_has_stopped(
    in_django_postgres: DjangoShop,
) -> None:
    shop, used = in_django_postgres, set[Any]()
    shop.behave = lambda _order: used.add(connections[shop.alias].connection)
    shop.fill("a", "b", ids=("1", "2"))
    with shop.start(concurrency=2, **QUICK) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
        assert not all(each.closed for each in used), "they are kept between calls"
    wait_until(lambda: used and all(each.closed for each in used))


def test_a_row_is_committed_with_the_changes_or_not_at_all(shop: DjangoShop) -> None:
    with transaction.atomic(shop.alias):
        models.Order.objects.using(shop.alias).create(value="a")
        row_id = models.Outbox.add("placed", b"17", b"a", using=shop.alias)
    with pytest.raises(ValueError, match="no"):
        add_and_fail(shop)
    with transaction.atomic(shop.alias):
        with pytest.raises(ValueError, match="no"):
            add_and_fail(shop)
        cancelled = models.Outbox.add("placed", b"17", b"c", using=shop.alias)
        assert models.Outbox.cancel(cancelled, using=shop.alias)
    assert [(each.id, bytes(each.payload)) for each in shop.rows()] == [(row_id, b"a")]


def add_and_fail(shop: DjangoShop) -> None:
    with transaction.atomic(shop.alias):
        models.Outbox.add("placed", b"17", b"b", using=shop.alias)
        raise ValueError("no")


def test_a_row_without_a_transaction_is_refused(shop: DjangoShop) -> None:
    with pytest.raises(UsageError, match="atomic"):
        models.Outbox.add("placed", b"17", b"a", using=shop.alias)
    assert shop.rows() == []


def test_a_row_is_what_sqlalchemys_outbox_writes(shop: DjangoShop) -> None:
    parts: dict[str, Any] = {
        "headers": [("tenant", b"eu"), ("raw", b"\xff\x00"), ("zero", b"\x00"), ("none", None)],
        "partition": 1,
        "timestamp": 17,
        "deliver_at": datetime(2030, 1, 1, tzinfo=UTC),
        "type": "placed",
    }
    outbox, engine = sqlalchemy_outbox(), sa.create_engine(url_of_alias(shop.alias))
    with transaction.atomic(shop.alias):
        models.Outbox.add("placed", b"17", b"a", using=shop.alias, **parts)
    with engine.begin() as connection:
        outbox.add(connection, "placed", b"17", b"a", **parts)
    with engine.connect() as connection:
        ours, theirs = connection.execute(sa.select(outbox.table).order_by(outbox.table.c.seq))
    engine.dispose()
    assert theirs.seq == ours.seq + 1
    same = [each.name for each in outbox.table.c if each.name not in {"id", "seq", "created_at"}]
    assert [getattr(ours, each) for each in same] == [getattr(theirs, each) for each in same]
    (first, _) = shop.rows()
    assert first.headers[0] == ["tenant", "eu"]
    assert first.available_at == parts["deliver_at"]


def test_the_tables_of_a_migration_are_those_that_the_relay_and_once_expect(
    shop: DjangoShop,
) -> None:
    database = shop.relay()
    database.check()
    table = database.outbox.table
    found = {each["name"] for each in sa.inspect(database.engine).get_indexes(table.name)}
    assert {each.name for each in table.indexes} <= found
    with database.engine.connect() as connection:
        shop.once().tables.check(connection, fenced=False)
    database.engine.dispose()


def test_sqlite_reads_due_rows_by_the_partial_index(in_sqlite: DjangoShop) -> None:
    """It does so only if the condition of the index stands literally in the query."""
    database = in_sqlite.relay()
    with database.engine.connect() as connection:
        plan = connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT id FROM wc_outbox WHERE shard = 1"
            " AND published_at IS NULL AND status <> 'failed' ORDER BY seq"
        )
        (step,) = plan
    database.engine.dispose()
    assert "ix_wc_outbox_order" in step.detail


def test_a_commit_wakes_the_relay_of_the_process(shop: DjangoShop) -> None:
    wake_up = WakeUp("wc_outbox")
    with transaction.atomic(shop.alias):
        models.Outbox.add("placed", b"17", b"a", using=shop.alias)
        assert not wake_up.wait(0)
    assert wake_up.wait(0)


def test_an_error_that_the_handler_catches_fails_the_call(shop: DjangoShop) -> None:
    def behave(order: Record) -> None:
        orders = models.Order.objects.using(shop.alias)
        if order.text() == "bad":
            try:
                orders.create(value="bad")
            except IntegrityError:
                return
        try:
            with transaction.atomic(shop.alias):
                orders.create(value=order.text())
        except IntegrityError:
            orders.create(value=f"{order.text()} again")

    shop.behave = behave
    shop.fill("bad", "good")
    with shop.start(**QUICK) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
        assert running.counters["place"].dead_lettered == 1
    assert shop.placed == ["good", "good again"]
    assert shop.ids() == 1


def test_hooks_of_the_commit_run_and_a_commit_in_the_handler_is_refused(shop: DjangoShop) -> None:
    ran: list[str] = []

    def behave(order: Record) -> None:
        transaction.on_commit(lambda: ran.append(order.text()), using=shop.alias)
        if order.text() == "bad":
            transaction.commit(shop.alias)

    shop.behave = behave
    shop.fill("bad", "good")
    with shop.start(**QUICK) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
    assert ran == ["good"]
    assert shop.placed == ["good"]


def test_a_lost_connection_is_replaced_before_the_next_call(in_django_postgres: DjangoShop) -> None:
    shop = in_django_postgres
    shop.fill("a")
    with shop.start(concurrency=1, **QUICK) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
        with shop.own.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <>"
                " pg_backend_pid() AND application_name LIKE 'window-consumer%%'"
                " AND datname = current_database() AND query NOT LIKE '%%terminate%%'"
            )
            assert cursor.rowcount == 1
        shop.fill("b")
        wait_until(lambda: running.counters["place"].processed == 2)
        assert running.counters["place"].retried == 0
    assert shop.placed == ["a", "b"]


def test_the_connections_of_slots_are_closed_at_the_end(in_django_postgres: DjangoShop) -> None:
    shop = in_django_postgres
    both = threading.Barrier(2)
    shop.behave = lambda _: both.wait(30.0) and None
    shop.fill("a", "b")
    ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"

    def connected() -> int:
        with shop.own.cursor() as cursor:
            cursor.execute(ours)
            return int(cursor.fetchone()[0])

    with shop.start(concurrency=2, **QUICK) as running:
        wait_until(lambda: running.counters["place"].processed == 2)
        assert connected() == 3  # this one and a slot's each
    wait_until(lambda: connected() == 1)


def test_a_lock_timeout_of_djangos_orm_is_one(in_sqlite: DjangoShop) -> None:
    shop = in_sqlite
    other = sa.create_engine(shop.url)
    with other.connect() as holder:
        holder.exec_driver_sql("BEGIN IMMEDIATE")
        with shop.own.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 1")
        with pytest.raises(OperationalError) as raised:
            models.Order.objects.using(shop.alias).create(value="a")
        assert is_lock_timeout(raised.value)
        holder.rollback()
    other.dispose()


def test_what_django_cannot_do_is_refused(in_sqlite: DjangoShop) -> None:
    shop = in_sqlite
    with pytest.raises(UsageError, match="fenced"):
        shop.start(once={"fenced": True})
    app = App("shop")

    async def place(order: Record) -> None:
        raise AssertionError(order)

    app.handler("orders", group="shop", name="place", once=shop.once())(place)
    with pytest.raises(UsageError, match="async def"):
        app.start(shop.file())


def test_stale_connections_are_closed_unless_they_are_in_a_transaction(
    in_sqlite: DjangoShop,
) -> None:
    shop = in_sqlite
    shop.own.settings_dict["CONN_MAX_AGE"] = 0
    shop.own.close()
    with transaction.atomic(shop.alias):
        models.Order.objects.using(shop.alias).create(value="a")
        fresh_connections(None, lambda _: models.Order.objects.using(shop.alias).create(value="b"))
    fresh_connections(None, lambda _: models.Order.objects.using(shop.alias).create(value="c"))
    assert shop.own.connection is None
    assert shop.placed == ["a", "b", "c"]


def test_the_test_kit_runs_handlers_with_django(in_sqlite: DjangoShop) -> None:
    shop = in_sqlite

    def behave(order: Record) -> Produce:
        models.Outbox.add("placed", order.key, b"added", using=shop.alias)
        return Produce("placed", order.key, b"returned")

    shop.behave = behave
    workers = {"workers": {"place": QUICK}}
    with TestApp(shop.app(shop.once()), workers, topics={"orders": 1, "placed": 1}) as wc_app:
        result = wc_app.send("orders", "a", key="c")
        values = [each.value for each in result.produced]
    assert values == [b"added", b"returned"]
    assert shop.placed == ["a"]


def test_the_relay_sends_the_rows_of_djangos_database(
    shop: DjangoShop, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("placed", 1)
    with transaction.atomic(shop.alias):
        row_id = models.Outbox.add(
            "placed", b"17", b"a", using=shop.alias, headers=[("raw", b"\xff")]
        )
    file = shop.file()
    text = file.read_text("utf-8")[:-1]
    file.write_text(f'{text}, "outbox": {{"database": "django://{shop.alias}"}}}}')
    with shop.app(shop.once()).start(file, start_timeout=60.0):
        (message,) = arrived(embedded, "placed", 1)
        wait_until(lambda: shop.rows() == [])
    assert (message.key(), message.value()) == (b"17", b"a")
    assert header(message, "wc-id") == str(row_id).encode()
    assert header(message, "raw") == b"\xff"


URLS: dict[str, tuple[dict[str, Any], str]] = {
    "postgres": (
        {"NAME": "shop", "USER": "u", "PASSWORD": "p@", "HOST": "db", "PORT": "5433"},
        "postgresql+psycopg://u:p%40@db:5433/shop",
    ),
    "options": (
        {"NAME": "shop", "OPTIONS": {"sslmode": "require", "pool": True, "isolation_level": 3}},
        "postgresql+psycopg:///shop?sslmode=require",
    ),
}


@pytest.mark.parametrize("name", list(URLS))
def test_the_url_of_a_database_follows_from_its_settings(name: str) -> None:
    given, url = URLS[name]
    engine = {"ENGINE": "django.db.backends.postgresql"}
    configured = connections.configure_settings({"default": {}, name: {**engine, **given}})
    connections.settings.update(configured)
    assert url_of_alias(name).render_as_string(hide_password=False) == url


def test_the_url_of_sqlite_is_its_file_or_its_uri() -> None:
    engine = {"ENGINE": "django.db.backends.sqlite3"}
    databases: dict[str, dict[str, Any]] = {
        "default": {},
        "file": {**engine, "NAME": Path("/shop/shop.db")},
        "shared": {**engine, "NAME": "file:shop?mode=memory&cache=shared"},
    }
    connections.settings.update(connections.configure_settings(databases))
    assert str(url_of_alias("file")) == "sqlite:////shop/shop.db"
    shared = url_of_alias("shared")
    assert shared.database == "file:shop"
    assert shared.query == {"mode": "memory", "cache": "shared", "uri": "true"}


def test_a_database_that_cannot_be_used_is_named() -> None:
    with pytest.raises(UsageError, match="'missing'"):
        url_of_alias("missing")
    with pytest.raises(UsageError, match="django://default"):
        url_of_alias("default")


@pytest.mark.parametrize("vendor", ["mysql", "oracle"])
def test_a_database_that_is_not_supported_is_refused_without_its_driver(vendor: str) -> None:
    databases = {"default": {}, "other": {"ENGINE": f"django.db.backends.{vendor}"}}
    connections.settings.update(connections.configure_settings(databases))
    with pytest.raises(UsageError, match=f"{vendor}.*postgresql, sqlite"):
        url_of_alias("other")


@pytest.mark.parametrize(("package", "extra"), [("sqlalchemy", "sql"), ("django", "django")])
def test_a_missing_package_is_named_with_its_extra(package: str, extra: str) -> None:
    script = rf"""
import sys
sys.modules["{package}"] = None
import pytest
from window_consumer import UsageError
with pytest.raises(UsageError, match=r"window-consumer\[{extra}\]"):
    import window_consumer.database.django
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_a_table_whose_indexes_would_have_too_long_names_is_refused() -> None:
    with pytest.raises(UsageError, match="17"):
        outbox_model(__name__, table="a_very_long_name_of_a_table")
