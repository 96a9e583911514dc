"""The examples for FastAPI, Django and Flask, and rows written by psql."""

from __future__ import annotations

import json
import re
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.commands import DEADLINE_S, Command, Commands, kafka_of
from tests.docs.pages import ROOT, blocks, module_of, table
from tests.waiting import wait_until
from window_consumer import Produce
from window_consumer.database import Outbox
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.record import Message
from window_consumer.testing.real_postgres import RealPostgres

ORDERS = 3
EXAMPLES = ROOT / "examples"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return str(request.getfixturevalue("database"))


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    for topic in ("orders", "order-events", "clicks"):
        embedded.create_topic(topic, 2)
    return embedded


def copy_example(name: str, directory: Path) -> None:
    shutil.copytree(EXAMPLES / name, directory, dirs_exist_ok=True)


@pytest.mark.parametrize("name", ["django", "fastapi", "flask"])
def test_a_page_shows_parts_of_its_example(name: str) -> None:
    page = ROOT / "docs" / f"{name}.md"
    shown = [each for each in (*blocks(page, "python"), *blocks(page, "yaml")) if each.file]
    assert len(shown) >= 3
    for each in shown:
        assert each.text in (EXAMPLES / name / str(each.file)).read_text("utf-8"), each.file


def scalar(url: str, sql: str) -> int:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql(sql).scalar()
    engine.dispose()
    return int(found or 0)


def events(broker: EmbeddedBroker, count: int) -> list[Message]:
    """Wait for the events of so many orders; the relay may send one twice."""
    found: dict[bytes, Message] = {}

    def are_there() -> bool:
        for each in broker.read_all("order-events"):
            found[dict(each.headers() or [])["wc-id"] or b""] = each
        return len(found) == count

    wait_until(are_there, why=f"{count} events")
    return list(found.values())


@contextmanager
def fastapi(directory: Path, env: dict[str, str]) -> Iterator[Command]:
    """Serve the example with uvicorn."""
    with Commands(directory) as commands:
        arguments = ("-m", "uvicorn", "web:web", "--port", "0")
        yield commands.python(*arguments, env={**env, "PYTHONPATH": f"{directory}:{ROOT}"})


def ask(address: str, path: str) -> Any:
    request = urllib.request.Request(address + path, method="POST")  # noqa: S310 - http
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:  # noqa: S310 - likewise
        return json.load(answer)


def test_the_fastapi_example_serves_sends_and_consumes_with_one_engine(
    broker: EmbeddedBroker, tmp_path: Path, url: str
) -> None:
    copy_example("fastapi", tmp_path)
    later = url.replace("sqlite:", "sqlite+aiosqlite:").replace("+psycopg:", "+asyncpg:")
    databases = {"DATABASE_URL": later, "OUTBOX_DATABASE": url}
    with fastapi(tmp_path, {"KAFKA_BOOTSTRAP": broker.bootstrap, **databases}) as server:
        server.wait_for("http://")
        address = str(re.findall(r"http://\S+", server.said)[0])
        for _ in range(ORDERS):
            ask(address, "/orders")
        count = "SELECT count(*) FROM invoices"
        wait_until(lambda: scalar(url, count) == ORDERS, why="invoices")
        assert ask(address, "/clicks/home")["offset"] == 0
        assert len(events(broker, ORDERS)) == ORDERS
        server.signal(signal.SIGTERM)
        ended = server.wait()
    assert ended.code in {0, -signal.SIGTERM}  # uvicorn ends by the signal that it was sent
    assert "Traceback" not in ended.err
    assert sum(broker.end_offsets("clicks").values()) == 1


CREATE_FLASK = "exec(open('create.py').read())\n"
ORDER_IN_FLASK = f"""
from web import web

client = web.test_client()
for number in range({ORDERS}):
    assert client.post(f"/orders/book-{{number}}").status_code == 200
"""


def test_the_flask_example_writes_and_invoices_with_db_session(
    broker: EmbeddedBroker, tmp_path: Path, database: str
) -> None:
    copy_example("flask", tmp_path)
    env = {"KAFKA_BOOTSTRAP": broker.bootstrap, "DATABASE_URL": database}
    with Commands(tmp_path) as commands:
        for source in (CREATE_FLASK, ORDER_IN_FLASK):
            ended = commands.script(source, env=env)
            assert ended.code == 0, ended.said
        worker = commands.start("run", "worker:app", "-c", "workers.yaml", env=env)
        assert len(events(broker, ORDERS)) == ORDERS
        ended = worker.stop()
        assert ended.code == 0, ended.said
    assert scalar(database, "SELECT count(*) FROM invoice") == ORDERS


MIGRATE = """
import os, django
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()
from django.core.management import call_command
call_command("makemigrations", "shop")
call_command("migrate")
call_command("makemigrations", "--check")
call_command("check", "--fail-level", "WARNING")
"""
ORDER_IN_DJANGO = f"""
import os, django
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()
from django.test import Client
for number in range({ORDERS}):
    assert Client().get(f"/orders/book-{{number}}").status_code == 200
"""


def django_database(url: str) -> dict[str, Any]:
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        (options,) = re.findall(r'"OPTIONS": (\{.*?\})', (ROOT / "docs/django.md").read_text())
        engine = "django.db.backends.sqlite3"
        return {"ENGINE": engine, "NAME": parsed.database, "OPTIONS": json.loads(options)}
    server = {"USER": parsed.username, "HOST": parsed.host, "PORT": parsed.port}
    return {"ENGINE": "django.db.backends.postgresql", "NAME": parsed.database, **server}


def test_the_django_example_migrates_writes_and_invoices_with_the_orm(
    broker: EmbeddedBroker, tmp_path: Path, url: str
) -> None:
    copy_example("django", tmp_path)
    with (tmp_path / "shop" / "worker.py").open("a") as file:
        file.write(module_of(ROOT / "docs/django.md"))
    databases = {"default": django_database(url)}
    env = {"KAFKA_BOOTSTRAP": broker.bootstrap, "DJANGO_SETTINGS_MODULE": "settings"}
    with Commands(tmp_path) as commands:
        with (tmp_path / "settings.py").open("a") as file:
            file.write(f'ALLOWED_HOSTS = ["*"]\nDATABASES = {databases!r}\n')
        for source in (MIGRATE, ORDER_IN_DJANGO):
            ended = commands.script(source)
            assert ended.code == 0, ended.said
        command = ("shop.worker:app", "-c", "workers.yaml")
        assert (checked := commands.run("check", *command, "--connect", env=env)).code == 0, (
            checked.said
        )
        worker = commands.start("run", *command, env=env)
        assert len(events(broker, ORDERS)) == ORDERS
        ended = worker.stop()
        assert ended.code == 0, ended.said
        assert commands.run("outbox", "status", "-c", "workers.yaml", env=env).code == 0
    assert scalar(url, "SELECT count(*) FROM shop_invoice") == ORDERS


def test_the_page_about_rows_has_the_shards_that_outbox_computes() -> None:
    _, *rows = table(ROOT / "docs/outbox-rows.md", "topic | key ")
    assert len(rows) == 2
    for topic, key, shard in rows:
        assert shard_of(topic.strip("`"), key.strip("`")) == int(shard)


def shard_of(topic: str, key: str) -> int:
    return int(Outbox(sa.MetaData()).row(Produce(topic, key.encode()))["shard"])


def test_rows_that_psql_writes_arrive_and_wake_the_relay(
    broker: EmbeddedBroker, commands: Commands, postgres: RealPostgres, database: str
) -> None:
    name = str(sa.make_url(database).database)
    create, add, notify = (block.text for block in blocks(ROOT / "docs/outbox-rows.md", "sql"))
    # Only a notification can wake it within the test.
    outbox = {"database": database, "poll": "60s", "notify": True}
    commands.configure({"kafka": kafka_of(broker), "outbox": outbox})
    postgres.query(commands.run("outbox", "ddl").out, name)
    postgres.query(create, name)
    relay = commands.start("outbox", "run")
    listens = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'"
    wait_until(lambda: scalar(database, listens) == 1, why="the relay listens")
    postgres.query(add.replace("COMMIT;", f"{notify}COMMIT;"), name)
    (placed,) = events(broker, 1)
    assert (placed.key(), placed.value()) == (b"17", b"placed")
    assert dict(placed.headers() or [])["tenant"] == b"eu"
    assert relay.stop().code == 0
    postgres.query(add, name)
    assert scalar(database, "SELECT shard FROM wc_outbox") == shard_of("order-events", "17")
