"""Fingerprints of errors stay what they are: dead letters of years are grouped by them.

The fingerprint of a failure names its class and the functions between the slot's layers and the
place where it was raised. Where code of ours moves, these values must not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from tests.testing.shops import config
from window_consumer import App, Record, header
from window_consumer.testing import TestApp


@frozen
class Order:
    amount: int


def refused(record: object) -> None:
    raise ConnectionError(f"not today: {record!r}")


def plain(app: App) -> None:
    app.handler("orders", name="work", group="g")(refused)


def coroutine(app: App) -> None:
    @app.handler("orders", name="work", group="g")
    async def work(order: Record) -> None:
        refused(order)


def typed(app: App) -> None:
    @app.handler("orders", name="work", group="g")
    def work(order: Order) -> None:
        refused(order)


def structured(app: App) -> None:
    @app.handler("orders", name="work", group="g", value=int)
    def work(order: Record, value: int) -> None:
        refused((order, value))


def decodes(app: App) -> None:
    def decode(value: bytes) -> object:
        refused(value)
        return value

    @app.handler("orders", name="work", group="g", value=decode)
    def work(order: Record, value: Any) -> None: ...


def batch(app: App) -> None:
    @app.batch_handler("orders", name="work", group="g")
    def work(orders: list[Record]) -> None:
        refused(orders)


def typed_batch(app: App) -> None:
    @app.batch_handler("orders", name="work", group="g", value=int)
    def work(orders: list[Record], values: list[int]) -> None:
        refused((orders, values))


def coroutine_batch(app: App) -> None:
    @app.batch_handler("orders", name="work", group="g")
    async def work(orders: list[Record]) -> None:
        refused(orders)


def around(app: App) -> None:
    @app.middleware
    def passing(record: Record, call_next: Callable[[Record], Any]) -> Any:
        return call_next(record)

    plain(app)


def around_batches(app: App) -> None:
    @app.middleware(around="batches")
    def passing(records: list[Record], call_next: Callable[[list[Record]], Any]) -> Any:
        return call_next(records)

    batch(app)


def routed(app: App) -> None:
    app.handler("orders", name="work", group="g", when=header("kind") == "a")(refused)


def batches_with_ttl(app: App) -> None:
    @app.batch_handler("orders", name="work", group="g", ttl="1h")
    def work(orders: list[Record]) -> None:
        refused(orders)


def around_routes(app: App) -> None:
    @app.middleware
    def passing(record: Record, call_next: Callable[[Record], Any]) -> Any:
        return call_next(record)

    routed(app)


def around_a_ttl(app: App) -> None:
    @app.middleware
    def passing(record: Record, call_next: Callable[[Record], Any]) -> Any:
        return call_next(record)

    app.handler("orders", name="work", group="g", ttl="1h")(refused)


def around_batches_with_ttl(app: App) -> None:
    @app.middleware(around="batches")
    def passing(records: list[Record], call_next: Callable[[list[Record]], Any]) -> Any:
        return call_next(records)

    batches_with_ttl(app)


FINGERPRINTS = [
    (plain, b"1", "0a54da76c0bb6052"),
    (coroutine, b"1", "e95e82559b635189"),
    (typed, b'{"amount":1}', "6a0f7e120289d6da"),
    (structured, b"1", "b2550cab53c64efc"),
    (structured, b"x", "75bb512e40f6b8c4"),
    (decodes, b"1", "4d476a18ca69a9be"),
    (batch, b"1", "02be78d0717805e2"),
    (typed_batch, b"1", "4750c7c389385d01"),
    (typed_batch, b"x", "26191036ca1b7147"),
    (coroutine_batch, b"1", "c47dc2c5ebdbb1d4"),
    (around, b"1", "846ffc148db21b7e"),
    (around_batches, b"1", "17b66c9d609185b2"),
    (routed, b"1", "0a54da76c0bb6052"),
    (batches_with_ttl, b"1", "d519259cb8ab9316"),
    (around_routes, b"1", "063c2646deaaa04a"),
    (around_a_ttl, b"1", "116357c44b0574c1"),
    (around_batches_with_ttl, b"1", "b493dd95308dc0f8"),
]


@pytest.mark.parametrize(("made", "value", "fingerprint"), FINGERPRINTS)
def test_a_failure_has_the_fingerprint_that_it_always_had(
    made: Callable[[App], None], value: bytes, fingerprint: str
) -> None:
    app = App("shop")
    made(app)
    with TestApp(app, config(work={"retry": {"attempts": 1}})) as wc_app:
        copy = wc_app.send("orders", value, key="c", headers={"kind": "a"}).copy
        assert copy is not None
        assert copy.fingerprint == fingerprint
