import os

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from window_consumer import App, Produce, Record
from window_consumer.database import Once, Outbox

metadata = sa.MetaData()
orders = sa.Table("orders", metadata, sa.Column("id", sa.String(36), primary_key=True))
invoices = sa.Table("invoices", metadata, sa.Column("order_id", sa.String(36)))
outbox = Outbox(metadata)

engine = create_async_engine(os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///shop.db"))
once = Once(engine, outbox, metadata=metadata)
app = App("shop")


@app.handler("orders", group="shop", ordering="unordered", once=once)
async def invoice(order: Record) -> Produce:
    await order.session.execute(sa.insert(invoices).values(order_id=order.text()))
    return Produce("order-events", order.key, b"invoiced")
