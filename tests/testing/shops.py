"""Applications and configurations that the tests of the test kit run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from window_consumer import App, Fatal, Record, RetryLater, Skip
from window_consumer.testing import TestApp


class Shop:
    """An application whose handler obeys a record's value, and notes the call."""

    def __init__(self) -> None:
        self.app = App("shop", version="7")
        self.seen: list[Any] = []
        self.down = False
        self.app.handler("orders", group="shop")(self.charge)

    def charge(self, order: Record) -> None:
        said = order.json() if order.value is not None else "tombstone"
        self.seen.append(said)
        if self.down or said == "fail":
            raise ConnectionError("away")
        if said == "poison":
            raise Fatal("no such customer")
        if said == "later":
            raise RetryLater(3.0)
        if said == "skip":
            raise Skip

    def run(self, worker: Mapping[str, Any] | None = None, **options: Any) -> TestApp:
        return TestApp(self.app, config(charge=worker or {}), **options)


def config(**workers: Mapping[str, Any]) -> dict[str, Any]:
    return {"kafka": {"bootstrap.servers": "${NOBODY_SETS_THIS}"}, "workers": workers}


PATIENT = {"retry": {"attempts": 3, "backoff": "1s..10s"}}
