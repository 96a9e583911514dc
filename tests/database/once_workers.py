"""Workers with ``once`` of every kind: threads, coroutines, child processes; records, batches.

What a record's call does stands in its value, because children share nothing with the test:
``a`` has an effect, ``a fails 2`` raises at its first two calls, ``a fails`` at each, ``a waits``
until the test lets it go on, ``a waits fails 1`` until then and then raises, ``a dies 1`` kills its
process at its first call, ``a stumbles`` raises until the test lets it go on, but not as a copy.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from attrs import frozen
from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.database.once_shop import DEADLINE_S
from tests.waiting import wait_until
from window_consumer import App, PartialFailure, Produce, Record, Running
from window_consumer.database import Once, Outbox

Headers = list[tuple[str, str | bytes | None]]


class Kind(NamedTuple):
    """Where calls run, and whether one gets a record or a list."""

    pool: str
    is_async: bool
    is_batch: bool

    def __str__(self) -> str:
        where = "coroutines" if self.is_async else self.pool
        return f"{where}-{'batches' if self.is_batch else 'records'}"


KINDS: Final = [
    Kind(pool, is_async, is_batch)
    for pool, is_async in (("threads", False), ("threads", True), ("processes", False))
    for is_batch in (False, True)
]

metadata = sa.MetaData()
effects = sa.Table("effects", metadata, sa.Column("value", sa.Text()))
outbox = Outbox(metadata)


def build(
    kind: Kind, url: str, journal: str, *, by_hash: bool = False, **once: Any
) -> tuple[App, Once]:
    """Make the application. Every process does so with the same arguments.

    With ``by_hash`` the id of ``a #1`` is 1.
    """
    app = App("shop")
    by = (lambda order: order.text().partition("#")[2]) if by_hash else None
    made = Once(lambda: _engine(kind, url), outbox=outbox, by=by, **once)
    handler = Calls(kind, Path(journal)).handler
    if kind.is_batch:
        app.batch_handler("orders", group="shop", name="place", once=made)(handler)
    else:
        app.handler("orders", group="shop", name="place", once=made)(handler)
    return app, made


def _engine(kind: Kind, url: str) -> Any:
    if not kind.is_async:
        return sa.create_engine(url, pool_size=20)
    return create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"), pool_size=20)


@frozen
class Calls:
    """The handler in its four forms."""

    kind: Kind
    journal: Path

    @property
    def handler(self) -> Any:
        """The form of the kind."""
        if self.kind.is_batch:
            return self.place_all_later if self.kind.is_async else self.place_all
        return self.place_later if self.kind.is_async else self.place

    def place(self, order: Record) -> list[Produce]:
        return self.place_all([order])

    def place_all(self, orders: list[Record]) -> list[Produce]:
        self.note(orders)
        for order in orders:
            order.session.execute(insert(order))
        return self.end(orders)

    async def place_later(self, order: Record) -> list[Produce]:
        return await self.place_all_later([order])

    async def place_all_later(self, orders: list[Record]) -> list[Produce]:
        self.note(orders)
        for order in orders:
            await order.session.execute(insert(order))
        return await asyncio.to_thread(self.end, orders)

    def note(self, orders: Sequence[Record]) -> None:
        line = json.dumps([(order.text(), order.attempt) for order in orders])
        with self.journal.open("a") as file:
            file.write(f"{line}\n")

    def end(self, orders: Sequence[Record]) -> list[Produce]:
        go = self.journal.with_name("go")
        if any("waits" in order.text().split() for order in orders):
            wait_until(go.exists)
        self.fail([order for order in orders if _is_hit(order, "fails") or _stumbles(order, go)])
        if any(_is_hit(order, "dies") for order in orders):
            os.kill(os.getpid(), signal.SIGKILL)
        return [Produce("invoices", order.key, order.value) for order in orders]

    def fail(self, bad: Sequence[Record]) -> None:
        if bad and not self.kind.is_batch:
            raise ValueError(bad)
        if bad:
            raise PartialFailure(bad)


def insert(order: Record) -> sa.Insert:
    return sa.insert(effects).values(value=order.text().split()[0])


def _is_hit(order: Record, what: str) -> bool:
    _, found, times = order.text().partition(f" {what}")
    return bool(found) and order.attempt <= int(times or 1_000)


def _stumbles(order: Record, go: Path) -> bool:
    return "stumbles" in order.text().split() and not order.is_copy and not go.exists()


class OnceBench:
    """A worker of one kind, its database, and its calls."""

    def __init__(
        self, bootstrap: str, folder: Path, url: str, kind: Kind, topic: str = "orders", **once: Any
    ):
        self.kind = kind
        self.topic = topic
        self.group = "shop" if topic == "orders" else f"shop-{topic}"
        self.engine = sa.create_engine(url)
        self._bootstrap = bootstrap
        self._folder = folder
        self._journal = folder / f"calls-{uuid.uuid4().hex}"
        if self.engine.dialect.name == "sqlite":
            with self.engine.connect() as connection:
                connection.execute(sa.text("PRAGMA journal_mode=WAL"))
        metadata.create_all(self.engine)
        # A separate module for each test, which children import by name.
        name = f"once_app_{uuid.uuid4().hex}"
        given = {"url": url, "journal": str(self._journal), **once}
        (folder / f"{name}.py").write_text(
            "from tests.database.once_workers import Kind, build\n"
            f"app, once = build(Kind(*{tuple(kind)!r}), **{given!r})\n"
        )
        sys.path.insert(0, str(folder))  # children import from where their parent does
        module = importlib.import_module(name)
        self._app: App = module.app
        self.once: Once = module.once
        self.once.tables.metadata.create_all(self.engine)

    def start(self, **worker: Any) -> Running:
        """Start the worker, with children if its kind has them."""
        if self.kind.is_batch:
            worker.setdefault("batch", {"max_wait": "10ms"})
        worker = {"topics": [self.topic], "group": self.group, "pool": self.kind.pool, **worker}
        file = self._folder / "workers.yaml"
        kafka = {"bootstrap.servers": self._bootstrap}
        file.write_text(json.dumps({"kafka": kafka, "workers": {"place": worker}}))
        return self._app.start(file, start_timeout=DEADLINE_S)

    def close(self) -> None:
        """Leave no connection and no place for modules behind."""
        self.engine.dispose()
        made = self.once.engine()
        if isinstance(made, AsyncEngine):
            asyncio.run(made.dispose())
        else:
            made.dispose()
        sys.path.remove(str(self._folder))

    def fill(self, *texts: str, ids: Sequence[str] = (), partitions: int = 1) -> None:
        """Write records with keys of their own, to each partition in turn."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for number, text in enumerate(texts):
            given: Headers = [("wc-id", ids[number].encode())] if ids else []
            partition = number % partitions
            producer.produce(self.topic, text, f"k{number}", partition, headers=given)
        assert producer.flush(DEADLINE_S) == 0

    def deliver_again(self, partitions: int = 1) -> None:
        """Rewind the group, as a crash before its first commit does."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.group,
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([self.topic])
            wait_until(lambda: consumer.poll(0.05) or len(consumer.assignment()) == partitions)
            start = [TopicPartition(self.topic, number, 0) for number in range(partitions)]
            consumer.commit(offsets=start, asynchronous=False)
        finally:
            consumer.close()

    def let_go(self) -> None:
        """Release waiting calls."""
        (self._folder / "go").touch()

    @property
    def calls(self) -> list[list[tuple[str, int]]]:
        """Each call's texts, with the number of the call that each record saw."""
        journal = self._journal
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [[(text, attempt) for text, attempt in json.loads(line)] for line in lines]

    def attempts_of(self, text: str) -> list[int]:
        """Return the numbers that calls of a record with this text saw, each once, in order.

        A batch with a bad record is called again without it, with the same numbers.
        """
        seen = [attempt for call in self.calls for each, attempt in call if each == text]
        return list(dict.fromkeys(seen))

    @property
    def placed(self) -> list[str]:
        """The effects, sorted."""
        with self.engine.connect() as connection:
            return sorted(connection.scalars(sa.select(effects.c.value)))

    def rows(self, table: sa.Table) -> list[Any]:
        """Return a table's rows."""
        with self.engine.connect() as connection:
            return list(connection.execute(sa.select(table)))

    @property
    def results(self) -> list[str]:
        """The payloads in the outbox, sorted."""
        return sorted(row.payload.decode() for row in self.rows(outbox.table))
