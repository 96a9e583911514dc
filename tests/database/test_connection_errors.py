"""A start is refused for a database that never answers, and waits for one that is away."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from tests.commands import Command, Commands, Ended, kafka_of
from tests.waiting import wait_until
from window_consumer.database.connection_errors import DatabaseUser, place_of, refusal_of
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_postgres import RealPostgres

SHOP = """
import os
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from window_consumer import App, Record
from window_consumer.database import Once

app = App("shop")
url = sa.make_url(os.environ["DATABASE_URL"])

if url.get_dialect().is_async:
    @app.handler("orders", group="shop", once=Once(create_async_engine(url, pool_size=64)))
    async def place(order: Record) -> None: ...
else:
    @app.handler("orders", group="shop", once=Once(sa.create_engine(url, pool_size=64)))
    def place(order: Record) -> None: ...
"""
ON_POSTGRES = ["psycopg", "asyncpg"]
ON_SQLITE = ["pysqlite", "aiosqlite"]
RUN = ("run", "shop:app")
CHECK = ("check", "shop:app", "--connect")
PASSWORD = "wr0ng-one"  # noqa: S105 - made up, and wrong

Shop = Callable[..., Command]


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Shop:
    embedded.create_topic("orders", 1)
    commands.application(SHOP)

    def start(url: sa.URL, *command: str, **config: Any) -> Command:
        rendered = url.render_as_string(hide_password=False)
        commands.configure({"kafka": kafka_of(embedded), "workers": {"place": {}}, **config})
        return commands.start(*command, env={"DATABASE_URL": rendered})

    return start


def assert_refused(ended: Ended, *named: str) -> None:
    assert ended.code == 2, ended.said
    for each in ("once of place", "Once()", *named):
        assert each in ended.err
    assert PASSWORD not in ended.said


@pytest.mark.parametrize("command", [RUN, CHECK])
@pytest.mark.parametrize("driver", ON_POSTGRES)
def test_a_database_that_does_not_exist_is_refused(
    shop: Shop, postgres: RealPostgres, driver: str, command: tuple[str, ...]
) -> None:
    url = sa.make_url(postgres.url("not-there", driver)).set(password=PASSWORD)
    assert_refused(shop(url, *command).wait(), "not-there", "CREATE DATABASE")


@pytest.mark.parametrize("command", [RUN, CHECK])
@pytest.mark.parametrize("driver", ON_POSTGRES)
def test_a_wrong_password_is_refused(
    shop: Shop, with_password: sa.URL, driver: str, command: tuple[str, ...]
) -> None:
    url = with_password.set(drivername=f"postgresql+{driver}", password=PASSWORD)
    assert_refused(shop(url, *command).wait(), str(url.username), str(url.port), "password")


@pytest.mark.parametrize("command", [RUN, CHECK])
@pytest.mark.parametrize("driver", ON_SQLITE)
def test_a_folder_that_does_not_exist_is_refused(
    shop: Shop, tmp_path: Path, driver: str, command: tuple[str, ...]
) -> None:
    folder = tmp_path / "not-there"
    assert_refused(
        shop(sa.make_url(f"sqlite+{driver}:///{folder}/shop.db"), *command).wait(), str(folder)
    )


@pytest.mark.parametrize("command", [RUN, CHECK, ("outbox", "run"), ("outbox", "status")])
def test_the_outbox_refuses_them_too(
    commands: Commands,
    embedded: EmbeddedBroker,
    tmp_path: Path,
    with_password: sa.URL,
    command: tuple[str, ...],
) -> None:
    embedded.create_topic("orders", 1)
    commands.application(
        "from window_consumer import App\napp = App('shop')\n"
        "@app.handler('orders', group='shop')\ndef place(order): ...\n"
    )
    refused = {
        "CREATE DATABASE": with_password.set(username="wc", database="not-there"),
        "pg_hba.conf": with_password.set(password=PASSWORD),
        str(tmp_path / "none"): sa.make_url(f"sqlite:///{tmp_path}/none/shop.db"),
    }
    for named, url in refused.items():
        outbox = {"database": url.render_as_string(hide_password=False)}
        workers: dict[str, Any] = {"place": {}}
        commands.configure({"kafka": kafka_of(embedded), "outbox": outbox, "workers": workers})
        ended = commands.run(*command)
        assert ended.code == 2, ended.said
        assert named in ended.err
        assert "outbox.database" in ended.err
        assert PASSWORD not in ended.said


@pytest.fixture
def with_password(postgres: RealPostgres) -> sa.URL:
    """The URL of a database for a role that has to show a password."""
    role = f"shop_{uuid.uuid4().hex[:12]}"
    postgres.query(f"CREATE ROLE {role} LOGIN PASSWORD 'right-one'")
    rules = postgres.directory / "data" / "pg_hba.conf"
    rules.write_text(f"host all {role} all scram-sha-256\n{rules.read_text()}")
    postgres.query("SELECT pg_reload_conf()")
    url = sa.make_url(postgres.url()).set(username=role, password=PASSWORD)
    engine = sa.create_engine(url, poolclass=sa.NullPool)

    def is_refused() -> bool:
        try:
            engine.connect().close()
        except OperationalError:
            return True
        return False

    wait_until(is_refused, why="the rule")
    return url.set(password="right-one")  # noqa: S106 - of a test


@pytest.mark.parametrize("driver", ON_POSTGRES)
@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("57P03", "the database system is starting up"),
        ("53300", "sorry, too many clients already"),
        (None, ""),
    ],
)
def test_what_can_heal_is_waited_for(shop: Shop, driver: str, code: str | None, text: str) -> None:
    """A server that starts, one with too many connections, and none at all."""
    with refusing(code, text) as port:
        url = sa.make_url(f"postgresql+{driver}://shop@127.0.0.1:{port}/shop")
        worker = shop(url.set(password=PASSWORD), *RUN)
        worker.wait_for_event(LogEvent.ONCE_DATABASE_AWAY)
        worker.wait_for_event(LogEvent.PARTITIONS_ASSIGNED)
        ended = worker.stop()
        assert ended.code == 0, ended.said
        checked = shop(url.set(password=PASSWORD), *CHECK).wait()
    assert checked.code == 1, checked.said
    assert PASSWORD not in ended.said + checked.said


@contextmanager
def refusing(code: str | None, text: str) -> Iterator[int]:
    """Answer as PostgreSQL that takes no connection, on the port; without code nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        if code is not None:
            thread = threading.Thread(target=_refuse, args=(server, code, text), daemon=True)
            thread.start()
            yield port
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            return
    yield port


def _refuse(server: socket.socket, code: str, text: str) -> None:
    fields = b"".join(f"{each}\0".encode() for each in ("SFATAL", "VFATAL", f"C{code}", f"M{text}"))
    answer = b"E" + (len(fields) + 5).to_bytes(4, "big") + fields + b"\0"
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            while (asked := client.recv(1_024))[4:8] in ENCRYPTIONS:
                client.sendall(b"N")
            if asked:
                client.sendall(answer)


ENCRYPTIONS = {(80877103).to_bytes(4, "big"), (80877104).to_bytes(4, "big")}
"""What a client asks first: for TLS, for GSSAPI."""

USER = DatabaseUser("outbox", "outbox.database")


def test_one_of_several_addresses_that_is_only_away_is_waited_for() -> None:
    missing = 'connection to server at "a", port 1 failed: FATAL:  database "x" does not exist'
    away = 'connection to server at "b", port 1 failed: Connection refused'
    url = sa.make_url("postgresql://shop@a,b/x")

    def is_refused(text: str) -> bool:
        refusal = refusal_of(OperationalError("", None, Exception(text)), url, USER)
        return isinstance(refusal, UsageError)

    assert is_refused(missing)
    assert is_refused(f"{missing}\n{missing}")
    assert not is_refused(f"{missing}\n{away}")
    assert not is_refused("Datenbank »x« existiert nicht")


def test_a_place_names_no_password() -> None:
    url = sa.make_url("postgresql://shop:hush@db/shop?sslpassword=hush&password=hush&host=a")
    assert place_of(url) == "postgresql://shop:***@db/shop?host=a"


@pytest.mark.parametrize("command", [("check", "shop:app"), ("outbox", "status")])
def test_a_driver_that_is_missing_is_answered_with_one_that_is_there(
    commands: Commands, command: tuple[str, ...]
) -> None:
    url = "postgresql+psycopg2://shop@db/shop"
    commands.application(f"import sqlalchemy\nsqlalchemy.create_engine({url!r})\n")
    commands.configure({"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "outbox": {"database": url}})
    ended = commands.run(*command)
    assert ended.code == 2, ended.said
    assert "postgresql+psycopg://" in ended.err
