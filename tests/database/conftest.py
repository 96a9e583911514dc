"""Databases with an outbox, and relays that run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from attrs import define, evolve, frozen

from tests.database.once_shop import OnceShop
from tests.kernel import client_log
from tests.waiting import wait_until
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.database.outbox.relay import OutboxRelay, RelayRules
from window_consumer.database.outbox.sender import KafkaOutboxSender, OutboxSender
from window_consumer.database.outbox.setup import OutboxDatabase
from window_consumer.database.outbox.table import Outbox
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.writing.batch_answers import Answer
from window_consumer.model.record import Message

PATIENCE_S = 30.0
QUICK = RelayRules(poll_s=0.02, first_pause_s=0.1, longest_pause_s=0.5)


@define
class OutboxBench:
    """An outbox with its table, seen from the application's side."""

    url: str
    outbox: Outbox
    engine: sa.Engine

    @property
    def table(self) -> sa.Table:
        return self.outbox.table

    def add(self, topic: str, key: bytes | None = None, value: bytes = b"", **more: Any) -> str:
        """Add a row in a separate transaction."""
        with self.engine.begin() as connection:
            return str(self.outbox.add(connection, topic, key, value, **more))

    def count(self, *where: sa.ColumnElement[bool]) -> int:
        with self.engine.connect() as connection:
            statement = sa.select(sa.func.count()).select_from(self.table).where(*where)
            return int(connection.scalar(statement) or 0)

    def rows(self) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(self.table.select().order_by(self.table.c.seq)))

    def waits_for_a_lock(self) -> bool:
        """Return whether a transaction waits for another one; PostgreSQL only."""
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        with self.engine.connect() as connection:
            found = connection.exec_driver_sql(f"{waiting} AND datname = current_database()")
            return bool(found.scalar())

    def database(self, **config: Any) -> OutboxDatabase:
        """Return the relay's side of it."""
        return OutboxDatabase.of(OutboxConfig(database=self.url, **config))


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return str(request.getfixturevalue("database"))


@contextmanager
def bench_at(url: str, **given: Any) -> Iterator[OutboxBench]:
    """Create the table in a database."""
    metadata = sa.MetaData()
    outbox = Outbox(metadata, **given)
    engine = sa.create_engine(url)
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.execute(sa.text("PRAGMA journal_mode=WAL"))
    metadata.create_all(engine)
    try:
        yield OutboxBench(url, outbox, engine)
    finally:
        engine.dispose()


@pytest.fixture
def bench(url: str) -> Iterator[OutboxBench]:
    """An outbox in PostgreSQL and in SQLite."""
    with bench_at(url) as bench:
        yield bench


@pytest.fixture
def in_postgres(database: str) -> Iterator[OutboxBench]:
    """An outbox in PostgreSQL."""
    with bench_at(database) as bench:
        yield bench


@frozen
class AnsweredRows:
    """Rows in flight whose answers are known."""

    known: Sequence[Answer]

    def answers(self, within_s: float) -> Sequence[Answer]:  # noqa: ARG002 - interface
        return self.known


Relaying = Callable[..., Any]


@contextmanager
def relaying(
    bench: OutboxBench,
    bootstrap: str,
    rules: RelayRules = QUICK,
    *,
    relay_class: type[OutboxRelay] = OutboxRelay,
    sender: OutboxSender | None = None,
    **changed: Any,
) -> Iterator[OutboxRelay]:
    """Relay in a thread, until the end of the block."""
    database = bench.database()
    stop = threading.Event()
    properties = {"bootstrap.servers": bootstrap, "log_level": 0}
    rules = evolve(rules, **changed)
    holds_keys = rules.on_refused == "block"
    own = sender or KafkaOutboxSender(properties, client_log(), holds_keys=holds_keys)
    relay = relay_class(database, own, rules, stop)
    thread = threading.Thread(target=relay.run, name="wc-outbox-relay", daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        stop.set()
        relay.wake_up.set()
        thread.join(PATIENCE_S)
        database.engine.dispose()
        assert not thread.is_alive()


def arrived(broker: EmbeddedBroker, topic: str, count: int) -> list[Message]:
    """Wait until a topic has ``count`` records, and return them."""
    found: list[Message] = []

    def is_there() -> bool:
        # A commit takes an offset, too.
        if sum(broker.end_offsets(topic).values()) >= count:
            found[:] = broker.read_all(topic)
        return len(found) >= count

    wait_until(is_there, why=f"{count} in {topic}")
    return found


def header(message: Message, name: str) -> bytes | None:
    """Return a header of a record, which must have it exactly once."""
    values: list[bytes | None] = [value for each, value in message.headers() or () if each == name]
    (found,) = values
    return found


@pytest.fixture
def shop(embedded: EmbeddedBroker, tmp_path: Path, url: str) -> Iterator[OnceShop]:
    embedded.create_topic("orders", 1)
    shop = OnceShop(embedded, tmp_path, url)
    yield shop
    shop.engine.dispose()


@pytest.fixture
def shop_in_postgres(embedded: EmbeddedBroker, tmp_path: Path, database: str) -> Iterator[OnceShop]:
    embedded.create_topic("orders", 1)
    shop = OnceShop(embedded, tmp_path, database)
    yield shop
    shop.engine.dispose()
