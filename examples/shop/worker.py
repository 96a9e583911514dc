"""Writes an invoice for each order, and an event about it: `window-consumer run worker:app`."""

import time

import sqlalchemy as sa
from tables import invoices, once

from window_consumer import App, Produce, Record

app = App("shop")


@app.handler("orders", once=once)
def invoice(order: Record) -> Produce:
    order_id = order.text()
    order.session.execute(sa.insert(invoices).values(order_id=order_id))
    time.sleep(0.05)  # time to be killed in
    return Produce("order-events", order_id, b"invoiced")
