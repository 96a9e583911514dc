"""A worker of the test kit whose values have schemas."""

from __future__ import annotations

from typing import Any, Protocol

from tests.schema_registry.orders import AvroOrder, Order
from tests.schema_registry.orders_pb2 import Order as OrderMessage
from window_consumer import App
from window_consumer.testing import TestApp

CLASSES: dict[str, Any] = {"avro": AvroOrder, "json": Order, "protobuf": OrderMessage}
"""The handler's parameter for each format."""


class AtUrl(Protocol):
    """A registry, ours or a real one."""

    @property
    def url(self) -> str: ...


def app_with(handler: Any, annotation: Any, *, batches: bool = False) -> App:
    """Return an application whose handler takes values of this type."""
    app = App("shop")
    handler.__annotations__ = {handler.__code__.co_varnames[0]: annotation}
    decorate = app.batch_handler if batches else app.handler
    decorate("orders", name="charge")(handler)
    return app


def reading(app: App, registry: AtUrl, form: str, **worker: Any) -> TestApp:
    """Return the application with a worker for orders of this format."""
    schema = {"registry": registry.url, "format": form, **worker.pop("schema", {})}
    keys = {"topics": ["orders"], "group": "shop", "schema": schema, **worker}
    return TestApp(app, config={"workers": {"charge": keys}}, topics={"orders": 4})
