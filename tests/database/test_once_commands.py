"""``window-consumer once`` as a user runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from tests.commands import Commands, Ended
from window_consumer.database import Once
from window_consumer.database.dialects.dialect import EffectKey, EffectOwner
from window_consumer.database.once.fence_locks import FenceLimits, FencePlace
from window_consumer.database.once.session import OnceSession

SHOP = """
import os
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from window_consumer import App, Record
from window_consumer.database import Once

app = App("shop")
url = sa.make_url(os.environ["DATABASE_URL"])
drivers = {"postgresql": "postgresql+asyncpg", "sqlite": "sqlite+aiosqlite"}
later = url.set(drivername=drivers[url.get_backend_name()])


@app.handler("orders", group="shop", once=Once(sa.create_engine(url), fenced=True))
def place(order: Record) -> None: ...


@app.handler("bills", group="shop", once=Once(lambda: create_async_engine(later), keep="2h"))
async def bill(order: Record) -> None: ...


@app.handler("ships", group="shop", once=Once(lambda: sa.create_engine(url), table="shipped"))
def ship(order: Record) -> None: ...
"""
PLAIN = """
from window_consumer import App, Record
app = App("shop")


@app.handler("orders", group="shop")
def place(order: Record) -> None: ...
"""

Asked = Callable[..., Ended]


@pytest.fixture
def ask(commands: Commands, url: str) -> Asked:
    """Return what runs ``once`` for a shop in an empty database."""
    commands.application(SHOP)
    commands.configure({"workers": {"place": {}, "bill": {}, "ship": {}}})

    def run(*command: str, database: str = url) -> Ended:
        return commands.run("once", *command, env={"DATABASE_URL": database})

    return run


def execute(engine: sa.Engine, script: str) -> None:
    with engine.begin() as connection:
        for statement in script.split(";"):
            if statement.strip():
                connection.exec_driver_sql(statement)


def test_the_ddl_creates_the_tables_that_the_status_then_finds(ask: Asked, url: str) -> None:
    """Two drivers lead to one database, whose tables are created once."""
    printed = ask("ddl", "shop:app")
    assert printed.code == 0, printed.said
    for table in ("wc_once", "wc_once_fence", "shipped"):
        assert printed.out.count(f"CREATE TABLE {table} (") == 1
    assert "shipped_fence" not in printed.out
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    execute(engine, printed.out)
    once = Once(engine)
    session = OnceSession(engine)
    session.begin_effects()
    owner, keys = EffectOwner("shop", "bill"), [EffectKey("bills:0", each) for each in "ab"]
    once.tables.insert(session, owner, keys, 1.0)
    once.tables.insert(session, EffectOwner("shop", "former"), keys[:1], 1.0)
    session.commit_effects()
    session.end()
    newer = sa.update(once.table).where(once.table.c.record_id == "b")
    later = sa.text("'2999-01-02 03:04:05'")
    with engine.begin() as connection:
        connection.execute(newer.values(done_at=later))
    ended = ask("status", "shop:app", "--json")
    assert ended.code == 0, ended.said
    ids, shipped = ended.json["databases"]
    assert (ids["table"], ids["exists"], ids["rows"]) == ("wc_once", True, 3)
    assert (shipped["table"], shipped["rows"], shipped["oldest"]) == ("shipped", 0, None)
    assert (ids["oldest"]["id"], ids["newest"]["id"]) == ("a", "b")
    assert ids["newest"]["done_at"].startswith("2999-01-02T03:04:05")
    found = {each["worker"]: (each["rows"], each["keep_s"]) for each in ids["workers"]}
    assert found == {"bill": (2, 7200.0), "place": (0, 15 * 86400.0), "former": (1, None)}
    assert ids["fences"] == []
    in_words = ask("status", "--app", "shop:app")
    assert in_words.code == 0
    assert "bills:0" in in_words.out


def test_the_status_has_the_fences_and_the_transactions_that_hold_them(
    ask: Asked, url: str
) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    execute(engine, ask("ddl", "shop:app").out)
    once = Once(engine)
    place = FencePlace("shop", "orders", 3)
    session = OnceSession(engine)
    session.begin_effects()
    once.tables.id_in(session)  # another lock, but not that of a fence
    once.tables.raise_fence(session, place, 1.0)
    session.commit_effects()
    session.begin_effects()
    try:
        once.tables.share_fence(session, place, FenceLimits(1.0, 60.0))
        ended = ask("status", "shop:app", "--json")
        assert ended.code == 0, ended.said
        (fence,) = ended.json["databases"][0]["fences"]
        assert (fence["group"], fence["topic"], fence["partition"]) == place
        assert fence["fence"] == 1
        held: list[Any] = []
        if engine.dialect.name == "postgresql":
            held = [session.scalar(sa.text("SELECT pg_backend_pid()"))]
        assert [each["pid"] for each in fence["owners"]] == held
        assert "orders[3]" in ask("status", "shop:app").out
    finally:
        session.end()


def test_a_missing_table_is_exit_2_with_its_ddl(ask: Asked) -> None:
    ended = ask("status", "shop:app", "--json")
    assert ended.code == 2, ended.said
    assert [each["exists"] for each in ended.json["databases"]] == [False, False]
    for table in ("wc_once", "wc_once_fence", "shipped"):
        assert f"CREATE TABLE {table} (" in ended.err
    assert ask("status", "shop:app").code == 2


def test_a_database_that_is_away_is_exit_1_and_one_that_is_not_there_exit_2(ask: Asked) -> None:
    away = "postgresql+psycopg://shop:s3cret@127.0.0.1:1/shop"
    assert ask("ddl", "shop:app", database=away).code == 0
    ended = ask("status", "shop:app", database=away)
    assert ended.code == 1, ended.said
    assert "s3cret" not in ended.said
    ended = ask("status", "shop:app", database="sqlite:////not/there/shop.db")
    assert ended.code == 2, ended.said
    assert "/not/there" in ended.err


def test_an_application_without_once_is_refused(commands: Commands) -> None:
    commands.application(PLAIN)
    commands.configure({"workers": {"place": {}}})
    for command in ("ddl", "status"):
        assert commands.run("once", command, "shop:app").code == 2
