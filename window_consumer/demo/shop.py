"""The demo's shop: orders that fail once, are poison, or hang; and a journal."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator

from attrs import frozen

from window_consumer import App
from window_consumer.model.record import Record

TOPIC = "orders"
PARTITIONS = 4
ORDERS = 20_000
CUSTOMERS = 400
HANG_S = 5.0

_FAILS_ONCE_EVERY = 150
_POISON_EVERY = 2_500
_HANGING = 2_001
_SHORTEST_S, _LONGEST_S = 0.001, 0.005


@frozen
class Order:
    """The content of a demo record."""

    number: int
    customer: int

    @property
    def key(self) -> bytes:
        """The record's key: orders of one customer are charged one after another."""
        return b"customer-%d" % self.customer

    @property
    def value(self) -> bytes:
        """The record's value."""
        return json.dumps({"order": self.number, "customer": self.customer}).encode()


def orders(count: int) -> Iterator[Order]:
    """Yield the demo's orders, the same ones each time."""
    random_ = random.Random(20)  # noqa: S311 - a demo, not cryptography
    for number in range(count):
        yield Order(number, random_.randrange(CUSTOMERS))


@frozen
class ShopCall:
    """One call of the handler, as the handler saw it."""

    order: int
    key: bytes
    partition: int
    offset: int
    attempt: int
    started: float
    ended: float
    succeeded: bool


class PaymentDeclinedError(Exception):
    """The error of the demo's payment provider."""


class Shop:
    """The application of the demo, and the journal of what its handler saw."""

    def __init__(self) -> None:
        self.journal: list[ShopCall] = []
        self.app = App("demo", version="demo")
        self.app.handler(TOPIC, name="charge")(self.charge)

    def charge(self, record: Record) -> None:
        """Charge an order: takes a few milliseconds, and sometimes fails."""
        started = time.perf_counter()
        succeeded = False
        number = int(record.json()["order"])
        try:
            self._pay(number, record.attempt)
            succeeded = True
        finally:
            call = ShopCall(
                number,
                record.key or b"",
                record.partition,
                record.offset,
                record.attempt,
                started,
                time.perf_counter(),
                succeeded,
            )
            self.journal.append(call)

    @staticmethod
    def _pay(number: int, attempt: int) -> None:
        if number == _HANGING:
            time.sleep(HANG_S)
        # The same orders take the same time in every run.
        share = (number * 2654435761 % 2**32) / 2**32
        time.sleep(_SHORTEST_S + share * (_LONGEST_S - _SHORTEST_S))
        if number % _POISON_EVERY == _POISON_EVERY - 1:
            raise PaymentDeclinedError(f"order {number} has no card")
        if number % _FAILS_ONCE_EVERY == 1 and attempt == 1:
            raise TimeoutError(f"the payment provider did not answer for order {number}")
