"""An application whose handler runs in child processes, each with an engine of its own."""

from __future__ import annotations

import os

import sqlalchemy as sa

from window_consumer import App, Record
from window_consumer.database import Once

app = App("shop")
once = Once(lambda: sa.create_engine(os.environ["ONCE_TEST_URL"]))
orders = sa.Table("orders", sa.MetaData(), sa.Column("value", sa.Text()))


@app.handler("orders", group="shop", once=once)
def place(order: Record) -> None:
    order.session.execute(sa.insert(orders).values(value=order.text()))
