"""A shop whose handler writes orders with once, on the embedded broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from window_consumer import App, Record, Running
from window_consumer.database import Once, Outbox
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord

DEADLINE_S = 60.0


class OnceShop:
    """A worker whose handler writes an order into a database, and behaves as a test says."""

    def __init__(self, broker: EmbeddedBroker, directory: Path, url: str):
        self.broker = broker
        self.directory = directory
        self.url = url
        self.metadata = sa.MetaData()
        self.orders = sa.Table("orders", self.metadata, sa.Column("value", sa.Text()))
        self.outbox = Outbox(self.metadata)
        self.engine = sa.create_engine(url, pool_size=20)
        if self.engine.dialect.name == "sqlite":
            with self.engine.connect() as connection:
                connection.execute(sa.text("PRAGMA journal_mode=WAL"))
        self.metadata.create_all(self.engine)
        self.behave: Callable[[Any], object] = lambda _: None
        self.calls: list[tuple[int, int]] = []

    def once(self, **given: Any) -> Once:
        once = Once(**{"engine": self.engine, "outbox": self.outbox, **given})
        once.tables.metadata.create_all(self.engine)
        return once

    def start(self, once: Once, *, kind: str = "function", **worker: Any) -> Running:
        return self.app(once, kind).start(self.file(**worker), start_timeout=DEADLINE_S)

    def app(self, once: Once, kind: str = "function") -> App:
        app = App("shop")

        def place(order: Record) -> object:
            self.calls.append((order.offset, order.attempt))
            order.session.execute(sa.insert(self.orders).values(value=order.text()))
            return self.behave(order)

        async def place_later(order: Record) -> object:
            self.calls.append((order.offset, order.attempt))
            await order.session.execute(sa.insert(self.orders).values(value=order.text()))
            await asyncio.sleep(0.001)
            return self.behave(order)

        def place_all(orders: list[Record]) -> object:
            for order in orders:
                self.calls.append((order.offset, order.attempt))
                order.session.execute(sa.insert(self.orders).values(value=order.text()))
            return self.behave(orders)

        async def place_all_later(orders: list[Record]) -> object:
            for order in orders:
                self.calls.append((order.offset, order.attempt))
                await order.session.execute(sa.insert(self.orders).values(value=order.text()))
            return self.behave(orders)

        if kind.startswith("batch"):
            batch = place_all if kind == "batch" else place_all_later
            app.batch_handler("orders", group="shop", name="place", once=once)(batch)
        else:
            one = place if kind == "function" else place_later
            app.handler("orders", group="shop", name="place", once=once)(one)
        return app

    def file(self, **worker: Any) -> Path:
        kafka = {"bootstrap.servers": self.broker.bootstrap}
        file = self.directory / "workers.yaml"
        file.write_text(json.dumps({"kafka": kafka, "workers": {"place": worker}}))
        return file

    def fill(self, *values: str, ids: tuple[str, ...] = ()) -> None:
        self.broker.fill(
            "orders",
            [
                NewRecord(value.encode(), b"k", headers=[("wc-id", ids[n].encode())] if ids else [])
                for n, value in enumerate(values)
            ],
        )

    @property
    def placed(self) -> list[str]:
        with self.engine.connect() as connection:
            return sorted(connection.scalars(sa.select(self.orders.c.value)))

    def run(self, *statements: str) -> None:
        """Execute SQL in the database."""
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def rows(self, table: sa.Table) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(sa.select(table)))


OVERTAKE: dict[str, Any] = {"retry": {"on_failure": "overtake"}}
QUICK: dict[str, Any] = {"retry": {"attempts": 3, "backoff": "10ms..10ms"}}
