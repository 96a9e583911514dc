"""Dead letters for tests, as a worker would write them, and an application that they belong to."""

from __future__ import annotations

import time
from typing import Any

from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.protocols import Headers

DLQ = "shop-charge.orders.dlq"

SHOP = """
from window_consumer import App, Record

app = App("shop", version="7")


@app.handler("orders")
def charge(order: Record) -> None:
    if order.json()["amount"] <= 0:
        raise ValueError(f"no amount: {order.key!r}")
    print(f"charged {order.offset}", flush=True)
"""


def config_for(bootstrap: str, **more: Any) -> dict[str, Any]:
    return {
        "kafka": {"bootstrap.servers": bootstrap},
        "workers": {"charge": {"group": "shop-charge", "topics": ["orders"]}},
        **more,
    }


def headers_of(offset: int, **changed: str | None) -> Headers:
    """Return the headers of a copy of ``orders/0/<offset>``; None omits a header."""
    failed_at = changed.pop("failed_at", None) or str(round(time.time() * 1000) - 1000)
    fields: dict[str, str | None] = {
        "wc-id": f"orders/0/{offset}",
        "wc-orig-topic": "orders",
        "wc-orig-partition": "0",
        "wc-orig-offset": str(offset),
        "wc-orig-timestamp": "1700000000000",
        "wc-format": "1",
        "wc-group": "shop-charge",
        "wc-handler": "charge",
        "wc-app-version": "7",
        "wc-reason": "RETRIES_EXHAUSTED",
        "wc-error-class": "ValueError",
        "wc-error-fingerprint": "0123456789abcdef",
        "wc-attempts": "3",
        "wc-first-failure": failed_at,
        "wc-last-failure": failed_at,
        "wc-error-message": "no amount",
        "wc-error-stack": "ValueError:\n  in charge\n",
        **{f"wc-{name.replace('_', '-')}": value for name, value in changed.items()},
    }
    return [(name, value.encode()) for name, value in fields.items() if value is not None]


def fill(
    broker: EmbeddedBroker, *records: NewRecord, topic: str = DLQ, partitions: int = 1
) -> None:
    broker.create_topic(topic, partitions)
    broker.fill(topic, records)


def letter(
    offset: int,
    value: bytes | None = b'{"amount": 0}',
    *,
    key: bytes | None = b"c1",
    own: Headers = (),
    **changed: str | None,
) -> NewRecord:
    return NewRecord(value, key, [*own, *headers_of(offset, **changed)])
