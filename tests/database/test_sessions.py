"""Sessions of the application: scoped ones, such as Flask-SQLAlchemy's, and those with binds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.database.conftest import OutboxBench
from tests.database.once_shop import QUICK, OnceShop
from tests.waiting import wait_until
from window_consumer import Produce, Record
from window_consumer.database import Once, Outbox
from window_consumer.model.errors import UsageError

ONE_AT_A_TIME: dict[str, Any] = {"ordering": "unordered", "concurrency": 1, **QUICK}


def test_a_scoped_session_adds_to_the_outbox(bench: OutboxBench) -> None:
    scoped = scoped_session(sessionmaker(bench.engine))
    row_id = bench.outbox.add(scoped, "order-events", b"17", b"placed")
    assert bench.count() == 0
    scoped.commit()
    assert [each.id for each in bench.rows()] == [row_id]
    bench.outbox.add(scoped, "order-events", b"17", b"rolled back")
    scoped.rollback()
    scoped.remove()
    assert bench.count() == 1


def test_a_session_with_binds_adds_to_the_database_of_the_table(
    bench: OutboxBench, tmp_path: Path
) -> None:
    other = sa.Table("reports", sa.MetaData(), sa.Column("value", sa.Text()))
    elsewhere = sa.create_engine(f"sqlite:///{tmp_path / 'elsewhere.db'}")
    binds: dict[Any, Any] = {other: elsewhere}
    with Session(binds=binds) as session, pytest.raises(UsageError, match="binds"):
        bench.outbox.add(session, "order-events")
    binds[bench.table] = bench.engine
    with Session(binds=binds) as session, session.begin():
        bench.outbox.add(session, "order-events", b"17")
    assert bench.count() == 1
    elsewhere.dispose()


def test_a_scoped_session_of_coroutines_adds_to_the_outbox(bench: OutboxBench) -> None:
    async def main() -> None:
        engine = create_async_engine(later(bench.url))
        scoped = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        await bench.outbox.add_async(scoped, "order-events", b"17")
        await scoped.commit()
        await scoped.remove()
        await engine.dispose()

    asyncio.run(main())
    assert bench.count() == 1


class ShopSession(Session):
    """What an application may have of its own."""


class LaterShopSession(AsyncSession):
    """The same for coroutines."""


@pytest.mark.parametrize("kind", ["function", "batch"])
@pytest.mark.parametrize("is_bound", [True, False])
def test_a_handler_gets_a_session_of_the_factory_in_the_transaction_of_once(
    shop: OnceShop,
    kind: str,
    is_bound: bool,  # noqa: FBT001 - of a table
) -> None:
    seen: list[type] = []
    attempts: list[int] = []

    def behave(given: Any) -> Produce:
        order = given[0] if isinstance(given, list) else given
        seen.append(type(order.session))
        attempts.append(order.attempt)
        if order.attempt == 1:
            order.session.flush()
            raise ValueError("once more")
        return Produce("placed", b"k")

    shop.behave = behave
    shop.fill("a", "a", ids=("1", "1"))
    factory = sessionmaker(shop.engine if is_bound else None, class_=ShopSession)
    once = shop.once(session=factory, fenced=kind == "function")
    with shop.start(once, kind=kind, **ONE_AT_A_TIME) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
        assert running.counters["place"].deduplicated == 1
    assert all(issubclass(each, ShopSession) for each in seen)
    assert set(attempts) == {1, 2}
    assert shop.placed == ["a"]
    assert len(shop.rows(shop.outbox.table)) == 1


def test_coroutines_get_one_too(shop: OnceShop) -> None:
    engine = create_async_engine(later(shop.url), poolclass=sa.NullPool)
    seen: list[type] = []
    shop.behave = lambda order: seen.append(type(order.session))
    shop.fill("a", "b", "a", ids=("1", "2", "1"))
    factory = async_sessionmaker(engine, class_=LaterShopSession)
    once = shop.once(engine=engine, session=factory)
    with shop.start(once, kind="coroutine", **ONE_AT_A_TIME) as running:
        wait_until(lambda: running.counters["place"].finished == 3)
    assert seen == [LaterShopSession] * 2
    assert shop.placed == ["a", "b"]


@pytest.mark.parametrize("what", ["commit", "rollback", "close"])
def test_what_ends_the_transaction_of_such_a_session_fails_the_call(
    shop: OnceShop, what: str
) -> None:
    def end(order: Record) -> None:
        with order.session.begin_nested():
            order.session.execute(sa.insert(shop.orders).values(value="nested"))
        if order.text() == "bad":
            getattr(order.session, what)()
            order.session.execute(sa.insert(shop.orders).values(value="after"))

    shop.behave = end
    shop.fill("bad", "good")
    once = shop.once(session=sessionmaker(shop.engine))
    with shop.start(once, ordering="unordered", **QUICK) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
        assert running.counters["place"].dead_lettered == 1
    assert shop.placed == ["good", "nested"]
    assert len(shop.rows(once.table)) == 1


def test_helpers_use_the_scoped_session_of_the_call_which_is_gone_after_it(shop: OnceShop) -> None:
    scoped = scoped_session(sessionmaker(shop.engine))
    sessions: list[Session] = []

    def helper(value: str) -> None:
        scoped.execute(sa.insert(shop.orders).values(value=f"{value}, helped"))
        shop.outbox.add(scoped, "placed", b"k")

    def behave(order: Record) -> None:
        sessions.append(order.session)
        assert order.session is scoped()
        helper(order.text())
        if order.text() == "bad":
            raise ValueError("never")

    shop.behave = behave
    shop.fill("a", "bad", "b")
    with shop.start(shop.once(session=scoped), ordering="unordered", **QUICK) as running:
        wait_until(lambda: running.counters["place"].finished == 3)
        assert running.counters["place"].dead_lettered == 1
    assert len(set(map(id, sessions))) == len(sessions)
    assert shop.placed == ["a", "a, helped", "b", "b, helped"]
    assert len(shop.rows(shop.outbox.table)) == 2
    assert shop.engine.pool.checkedout() == 0  # type: ignore[attr-defined] # a QueuePool


def test_a_context_around_a_session_is_left_after_the_call(shop: OnceShop) -> None:
    entered: list[str] = []

    @contextmanager
    def session() -> Iterator[Session]:
        entered.append("in")
        yield ShopSession(shop.engine)
        entered.append("out")

    shop.fill("a", "b")
    with shop.start(shop.once(session=session), **ONE_AT_A_TIME) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
    assert shop.placed == ["a", "b"]
    assert entered == ["in", "out"] * 2


def test_a_session_with_binds_writes_to_its_databases(shop: OnceShop, tmp_path: Path) -> None:
    """What goes through the engine of once is in its transaction."""
    elsewhere = sa.create_engine(f"sqlite:///{tmp_path / 'elsewhere.db'}")
    reports = sa.Table("reports", sa.MetaData(), sa.Column("value", sa.Text()))
    reports.create(elsewhere)
    factory = sessionmaker(binds={reports: elsewhere, shop.orders: shop.engine})
    shop.behave = lambda order: order.session.execute(sa.insert(reports).values(value="r"))
    shop.fill("a")
    with shop.start(shop.once(session=factory), **QUICK) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
    assert shop.placed == ["a"]
    with elsewhere.connect() as connection:
        assert connection.scalars(sa.select(reports.c.value)).all() == ["r"]
    elsewhere.dispose()


def test_two_engines_for_one_database_are_refused(shop_in_postgres: OnceShop) -> None:
    """Their changes would be two transactions."""
    shop = shop_in_postgres
    second = sa.create_engine(shop.url)
    factory = sessionmaker(shop.engine, binds={shop.orders: second})
    assert_refused(shop, factory)
    second.dispose()


@pytest.mark.parametrize("made", ["another database", "no session", "coroutines"])
def test_a_session_that_cannot_be_used_is_refused(
    shop: OnceShop, tmp_path: Path, made: str
) -> None:
    other = sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    shop.once().tables.metadata.create_all(other)
    factories: dict[str, Any] = {
        "another database": sessionmaker(other),
        "no session": lambda: shop.engine.url,
        "coroutines": AsyncSession,
    }
    assert_refused(shop, factories[made])
    other.dispose()


def assert_refused(shop: OnceShop, factory: Any) -> None:
    shop.fill("a")
    once = shop.once(session=factory)
    with shop.start(once, retry={"attempts": 1}) as running:
        wait_until(lambda: running.counters["place"].dead_lettered == 1)
    (letter,) = shop.broker.read_all("shop.orders.dlq")
    headers = dict(letter.headers() or [])
    assert headers["wc-error-class"] == b"window_consumer.model.errors.UsageError"
    assert (shop.placed, shop.rows(once.table)) == ([], [])


def test_db_session_of_flask_sqlalchemy_works_with_once_and_outbox(
    shop: OnceShop, tmp_path: Path
) -> None:
    flask = pytest.importorskip("flask")
    flask_sqlalchemy = pytest.importorskip("flask_sqlalchemy")
    web = flask.Flask("shop")
    web.config["SQLALCHEMY_DATABASE_URI"] = shop.url
    web.config["SQLALCHEMY_BINDS"] = {"reports": f"sqlite:///{tmp_path / 'reports.db'}"}
    db = flask_sqlalchemy.SQLAlchemy(web)
    outbox = Outbox(db.metadata, "flask_outbox")

    class Bill(db.Model):  # type: ignore[misc, name-defined] # Any
        id = sa.Column(sa.Integer, primary_key=True)
        value = sa.Column(sa.Text)

    class Report(db.Model):  # type: ignore[misc, name-defined] # Any
        __bind_key__ = "reports"
        id = sa.Column(sa.Integer, primary_key=True)

    @contextmanager
    def session() -> Iterator[Any]:
        with web.app_context():
            yield db.session

    def bill(order: Record) -> None:
        db.session.add(Bill(value=order.text()))
        db.session.add(Report())
        outbox.add(db.session, "billed", order.key, order.value)
        assert order.session is db.session()
        if order.attempt == 1:
            db.session.flush()
            raise ValueError("once more")

    with web.app_context():
        once = Once(db.engine, outbox, metadata=db.metadata, table="flask_once", session=session)
        db.create_all()
        outbox.add(db.session, "ordered", b"17", b"from a view")
        db.session.commit()
    shop.behave = bill
    shop.fill("a", "b", "a", ids=("1", "2", "1"))
    with shop.start(once, **ONE_AT_A_TIME) as running:
        wait_until(lambda: running.counters["place"].finished == 3)
        assert running.counters["place"].deduplicated == 1
    with web.app_context():
        assert sorted(db.session.scalars(sa.select(Bill.value))) == ["a", "b"]
        assert db.session.query(Report).count() == 2
        assert len(db.session.execute(sa.select(outbox.table)).all()) == 3
        db.session.remove()
        for engine in db.engines.values():
            engine.dispose()


def later(url: str) -> str:
    return url.replace("sqlite:", "sqlite+aiosqlite:").replace("+psycopg:", "+asyncpg:")
