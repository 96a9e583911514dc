"""Ids reach the table as they are, through every driver, and come back from it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
from attrs import frozen
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.database.once_shop import QUICK, OnceShop
from tests.waiting import wait_until
from window_consumer.database.dialects.dialect import EffectKey, EffectOwner
from window_consumer.database.once.session import OnceSession
from window_consumer.database.once.tables import OnceTables
from window_consumer.database.once.transactions import Engine, transaction_on

DRIVERS: Final = [
    ("sqlite", False),
    ("sqlite+aiosqlite", True),
    ("postgresql+psycopg", False),
    ("postgresql+psycopg", True),
    ("postgresql+asyncpg", True),
]
"""And whether coroutines use it."""
OWNER: Final = EffectOwner("group 100%", "worker's")
ORIGIN: Final = itertools.count()

MEANT_BY_SQL: Final = "%:'\"\\{}(),$?;-*/_ \n\t"
ANY_ID = st.text(
    st.sampled_from(MEANT_BY_SQL)
    | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    min_size=1,
    max_size=12,
)
PLACEHOLDERS: Final = ["%", "%%", "%s", "%(a)s", ":ms", "\\:ms", "\\", "'", "$1", "{", "null"]


@frozen
class Ids:
    """The table of ids in a database, seen through one driver."""

    engine: Engine
    tables: OnceTables
    on_loop: Callable[[Any], Any]

    def insert(self, keys: Sequence[EffectKey]) -> set[EffectKey]:
        """Insert ids as a call does, in a transaction that is committed."""

        def work(session: OnceSession) -> set[EffectKey]:
            session.begin_effects()
            new = self.tables.insert(session, OWNER, keys, 2.0)
            session.commit_effects()
            return new

        return self._run(work)

    def stored(self, origin: str) -> set[str]:
        """Return the ids that are there."""

        def work(session: OnceSession) -> set[str]:
            table = self.tables.ids
            rows = sa.select(table.c.record_id, table.c.group_name, table.c.worker)
            found = session.execute(rows.where(table.c.origin == origin)).all()
            assert {row[1:] for row in found} <= {tuple(OWNER)}
            return {row.record_id for row in found}

        return self._run(work)

    def _run(self, work: Callable[[OnceSession], set[Any]]) -> set[Any]:
        transaction = transaction_on(self.engine)
        try:
            return set(self.on_loop(transaction.run(work)))
        finally:
            self.on_loop(transaction.run(OnceSession.end))


@pytest.fixture(
    params=[
        (*driver, level)
        for driver in DRIVERS
        for level in (None, "SERIALIZABLE" if "sqlite" in driver[0] else "REPEATABLE READ")
    ],
    ids=str,
)
def ids(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ids]:
    name, is_async, isolation_level = request.param
    url = sa.make_url(f"sqlite:///{tmp_path / 'ids.db'}")
    if "sqlite" not in name:
        url = sa.make_url(request.getfixturevalue("database"))
    tables = OnceTables("wc_once")
    plain = sa.create_engine(url)
    tables.metadata.create_all(plain)
    plain.dispose()
    more: dict[str, Any] = {} if isolation_level is None else {"isolation_level": isolation_level}
    url = url.set(drivername=name)
    if not is_async:
        engine = sa.create_engine(url, **more)
        yield Ids(engine, tables, lambda result: result)
        engine.dispose()
        return
    with asyncio.Runner() as runner:
        later: AsyncEngine = create_async_engine(url, **more)

        async def wait_for(result: Any) -> Any:
            return await result

        yield Ids(later, tables, lambda result: runner.run(wait_for(result)))
        runner.run(later.dispose())


EVERY_DRIVER = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@EVERY_DRIVER
@given(ANY_ID)
@example("50% of %s")
def test_an_id_is_stored_as_it_is_and_is_no_longer_new(ids: Ids, record_id: str) -> None:
    key = EffectKey(f"o%:{next(ORIGIN)}", record_id)
    assert ids.insert([key]) == {key}
    assert ids.stored(key.origin) == {record_id}
    assert ids.insert([key]) == set()


@EVERY_DRIVER
@given(st.sets(ANY_ID, min_size=1, max_size=8), st.sets(ANY_ID, min_size=1, max_size=8))
@example({"a%b", "a"}, {"a%b", "a%%b"})
@example(set(PLACEHOLDERS), {"b"})
def test_of_a_batch_exactly_the_new_ids_are_new(
    ids: Ids, before: set[str], after: set[str]
) -> None:
    origin = f"o%:{next(ORIGIN)}"
    first = [EffectKey(origin, each) for each in before]
    then = [EffectKey(origin, each) for each in (*after, *after)]
    assert ids.insert(first) == set(first)
    assert {each.record_id for each in ids.insert(then)} == after - before
    assert ids.stored(origin) == after | before


SWALLOWS: Final = {
    "sqlite": ["CREATE TRIGGER t BEFORE INSERT ON wc_once BEGIN SELECT RAISE(IGNORE); END"],
    "postgresql": [
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER t BEFORE INSERT ON wc_once FOR EACH ROW EXECUTE FUNCTION f()",
    ],
}
ALTERS: Final = {
    "postgresql": [
        (
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN NEW.record_id = NEW.record_id || NEW.record_id; RETURN NEW; END'"
        ),
        "CREATE TRIGGER t BEFORE INSERT ON wc_once FOR EACH ROW EXECUTE FUNCTION f()",
    ]
}


@pytest.mark.parametrize("kind", ["function", "batch"])
def test_an_id_that_the_database_does_not_name_fails_its_record_and_is_no_duplicate(
    shop: OnceShop, kind: str
) -> None:
    once = shop.once()
    shop.run(*SWALLOWS[shop.engine.dialect.name])
    shop.fill("a", ids=("1",))
    with shop.start(once, kind=kind, **QUICK) as running:
        wait_until(lambda: running.counters["place"].dead_lettered == 1)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.retried) == (0, 0, 2)
    assert shop.calls == []
    (copy,) = shop.broker.read_all("shop.orders.dlq")
    assert dict(copy.headers() or ())["wc-error-class"].endswith(b"IdsUnknownError")


def test_an_id_that_the_database_alters_fails_its_record(shop_in_postgres: OnceShop) -> None:
    shop = shop_in_postgres
    once = shop.once()
    shop.run(*ALTERS["postgresql"])
    shop.fill("a", ids=("1",))
    with shop.start(once, **QUICK) as running:
        wait_until(lambda: running.counters["place"].dead_lettered == 1)
    assert (shop.calls, shop.placed, shop.rows(once.table)) == ([], [], [])
