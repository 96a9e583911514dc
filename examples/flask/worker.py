from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from web import Invoice, db, outbox, web

from window_consumer import App, Produce, Record
from window_consumer.database import Once


@contextmanager
def session() -> Iterator[Any]:
    with web.app_context():
        yield db.session


with web.app_context():
    once = Once(db.engine, outbox, metadata=db.metadata, session=session)

app = App("shop")


@app.handler("orders", group="shop", ordering="unordered", once=once)
def invoice(order: Record) -> Produce:
    db.session.add(Invoice(order_id=int(order.text())))
    return Produce("order-events", order.key, b"invoiced")
