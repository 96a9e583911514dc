"""The shop's database: orders, invoices, and the two tables of the framework."""

import os
from pathlib import Path

import sqlalchemy as sa

from window_consumer.database import Once, Outbox

# By default shop.db in this folder, wherever a program was started.
URL = os.environ.get("DATABASE_URL", f"sqlite:///{Path(__file__).with_name('shop.db')}")

metadata = sa.MetaData()
orders = sa.Table(
    "orders",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("item", sa.Text, nullable=False),
)
# No unique column prevents a second invoice: `once` does.
invoices = sa.Table(
    "invoices",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("order_id", sa.String(36), nullable=False),
)
outbox = Outbox(metadata)  # the table wc_outbox


def make_engine() -> sa.Engine:
    if URL.startswith("sqlite"):
        return sa.create_engine(URL, connect_args={"timeout": 30})
    return sa.create_engine(URL)


engine = make_engine()
once = Once(engine, outbox=outbox)  # the table wc_once


def create() -> None:
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    metadata.create_all(engine)
    once.tables.metadata.create_all(engine)
