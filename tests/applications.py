"""Sources of the applications that the tests of the command line run."""

from __future__ import annotations

SHOP = """
from window_consumer import App, Fatal, Record

app = App("shop", version="7")


@app.handler("orders", group="shop", retry={"attempts": 2, "backoff": "10ms..20ms"})
def charge(order: Record) -> None:
    if order.text().startswith("poison"):
        raise Fatal(order.text())
    print(f"charged {order.text()}", flush=True)
"""
