"""The web form: a page of orders, and POST /orders, which writes an order and its event at once."""

import html
import uuid
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

import sqlalchemy as sa
from tables import engine, invoices, orders, outbox

PAGE = """<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<title>Shop</title><h1>Shop</h1>
<form method="post" action="/orders"><input name="item" required autofocus> <button>Order</button>
</form><table><tr><th>order</th><th>item</th><th>invoices</th></tr>{rows}</table>"""


def place(item: str) -> str:
    order_id = str(uuid.uuid4())
    with engine.begin() as connection:  # both, or none
        connection.execute(sa.insert(orders).values(id=order_id, item=item))
        outbox.add(connection, "orders", key=order_id, value=order_id)
    return order_id


def page() -> str:
    count = sa.func.count(invoices.c.number)
    query = sa.select(orders.c.id, orders.c.item, count).group_by(orders.c.id, orders.c.item)
    with engine.connect() as connection:
        found = connection.execute(query.outerjoin_from(orders, invoices, INVOICED)).all()
    cells = ("".join(f"<td>{html.escape(str(each))}" for each in row) for row in found)
    return PAGE.format(rows="".join(f"<tr>{row}" for row in cells))


INVOICED = invoices.c.order_id == orders.c.id


class Form(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(200, page())

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        item = parse_qs(self.rfile.read(length).decode()).get("item", [""])[0]
        if not item:
            self.answer(400, "an order needs an item")
            return
        self.answer(303, place(item), Location="/")

    def answer(self, status: int, text: str, **headers: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Leave the terminal to the worker."""
