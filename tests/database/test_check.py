"""``check --connect``: what it says about the databases of ``once`` and the outbox."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from tests.commands import Commands, Ended
from tests.golden_texts import Golden
from window_consumer.database import Once, Outbox
from window_consumer.kafka.embedded import EmbeddedBroker

SHOP = """
import os
import sqlalchemy as sa
from window_consumer import App, Produce, Record
from window_consumer.database import Once, Outbox

app = App("shop")
once = Once(sa.create_engine(os.environ["DATABASE_URL"]), outbox=Outbox(sa.MetaData()))


@app.handler("orders", group="shop", concurrency=4, once=once)
def place(order: Record) -> Produce:
    return Produce("placed", order.key)
"""

Check = Callable[..., Ended]


@pytest.fixture
def check(commands: Commands, embedded: EmbeddedBroker) -> Check:
    embedded.create_topic("orders", 1)
    commands.application(SHOP)

    def run(url: str, *more: str, with_outbox: bool = True) -> Ended:
        config: dict[str, Any] = {
            "kafka": {"bootstrap.servers": embedded.bootstrap},
            "workers": {"place": {}},
        }
        if with_outbox:
            config["outbox"] = {"database": "${DATABASE_URL}"}
        commands.configure(config)
        env = {"DATABASE_URL": url}
        return commands.run("check", "shop:app", "--connect", "--json", *more, env=env)

    return run


def create_tables(url: str, *, outbox: bool = True) -> None:
    engine = sa.create_engine(url)
    metadata = sa.MetaData()
    once = Once(engine, outbox=Outbox(metadata))
    once.tables.metadata.create_all(engine)
    if outbox:
        metadata.create_all(engine)
    engine.dispose()


def test_tables_and_rights_are_reported(check: Check, url: str, golden: Golden) -> None:
    create_tables(url)
    named = sa.make_url(url)
    if named.get_backend_name() == "postgresql":
        named = named.set(password="hush")  # noqa: S106 - made up, any is taken
        url = named.render_as_string(hide_password=False)
    ended = check(url)
    assert ended.code == 0, ended.said
    of_once, of_outbox = json.loads(ended.out)["databases"]
    golden(of_once["used_by"])
    golden(of_outbox["used_by"])
    assert (of_once["tables"], of_outbox["tables"]) == (["wc_once", "wc_outbox"], ["wc_outbox"])
    assert of_once["database"] == of_outbox["database"]
    assert "hush" not in ended.said


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_pool_that_is_smaller_than_the_concurrency_is_reported_with_what_to_write(
    check: Check, url: str
) -> None:
    """Without a connection, too: SQLAlchemy's 15 are fewer than 16 calls."""
    create_tables(url)
    for concurrency, size in ((15, None), (16, 6), (40, 30)):
        override = f"workers.place.concurrency={concurrency}"
        ended = check(url, "--set", override)
        assert ended.code == 0, ended.said
        warnings = [each for each in ended.json["process"]["warnings"] if "once" in each]
        assert [f"pool_size={size})" in each for each in warnings] == ([True] if size else [])


def test_one_writer_at_a_time_is_reported(check: Check, url: str) -> None:
    create_tables(url)
    ended = check(url)
    assert ended.code == 0, ended.said
    warnings = [each for each in ended.json["process"]["warnings"] if "connect_args" in each]
    assert len(warnings) == url.startswith("sqlite")


def test_a_table_that_is_missing_is_refused_with_its_sql(check: Check, url: str) -> None:
    ended = check(url)
    assert ended.code == 2
    assert "CREATE TABLE wc_once" in ended.err
    create_tables(url, outbox=False)
    ended = check(url, with_outbox=False)
    assert ended.code == 2
    assert "CREATE TABLE wc_outbox" in ended.err


def test_rights_that_are_missing_are_refused_with_what_grants_them(
    check: Check, database: str
) -> None:
    create_tables(database)
    url, role = as_role(database)
    for expected in (
        ["GRANT SELECT, INSERT, DELETE ON wc_once", "GRANT INSERT ON wc_outbox"],
        ["GRANT SELECT, UPDATE, DELETE ON wc_outbox"],
    ):
        ended = check(url)
        assert ended.code == 2
        grants = [line for line in ended.err.splitlines() if line.startswith("GRANT")]
        assert grants == [f"{each} TO ...;" for each in expected]
        with sa.create_engine(database, poolclass=sa.NullPool).begin() as connection:
            for grant in grants:
                connection.execute(sa.text(grant.replace("...", role)))
    assert check(url).code == 0


def as_role(database: str) -> tuple[str, str]:
    """Create a role without rights; return the database's URL for it, and its name."""
    url = sa.make_url(database)
    role = f"shop_{str(url.database).removeprefix('test-')}"
    with sa.create_engine(database, poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text(f"CREATE ROLE {role} LOGIN"))
    return url.set(username=role).render_as_string(hide_password=False), role


def test_a_database_that_is_away_is_a_failure_that_may_pass(check: Check) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ended = check(f"postgresql+psycopg://shop@127.0.0.1:{port}/shop", with_outbox=False)
    assert ended.code == 1
    assert str(port) in ended.err


def test_a_database_that_never_answers_is_waited_for_no_longer_than_a_broker(check: Check) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, and says nothing
        port = server.getsockname()[1]
        url = f"postgresql+psycopg://shop@127.0.0.1:{port}/shop"
        ended = check(url, "--start-timeout", "1s", with_outbox=False)
    assert ended.code == 1
    assert "1s" in ended.err
