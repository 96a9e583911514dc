"""A record keeps its id and its origin on every hop of its way, as the test kit shows it."""

from __future__ import annotations

import pytest

from tests.testing.shops import config
from window_consumer import App, Record
from window_consumer.testing import DEAD_LETTERED, DONE, MOVED, TestApp

LEVELS = {"retry": {"attempts": 2, "levels": ["10s", "10m"]}}


class Ledger:
    """An application that notes what each call was given, until it is told to succeed."""

    def __init__(self, pool: str = "threads") -> None:
        self.app = App("shop")
        self.broken = True
        self.seen: list[tuple[str, str, tuple[str, int, int]]] = []
        self.app.handler("orders", group="shop", pool=pool)(self.charge)  # type: ignore[arg-type] # a text

    def charge(self, order: Record) -> None:
        self.seen.append((order.topic, order.id, order.origin))
        if self.broken:
            raise ConnectionError


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_the_id_is_the_same_in_every_level_among_the_dead_letters_and_after_a_redrive(
    pool: str,
) -> None:
    ledger = Ledger(pool)
    with TestApp(ledger.app, config(charge=LEVELS)) as wc_app:
        wc_app.send("orders", 1, partition=3)
        result = wc_app.send("orders", 2, partition=3)
        ledger.seen.clear()
        wc_app.advance("5s")
        assert result.outcome is MOVED
        wc_app.crash()
        wc_app.run_until_settled()
        assert result.outcome is DEAD_LETTERED
        ledger.broken = False
        wc_app.redrive()
        assert result.outcome is DONE
        mine = [each for each in ledger.seen if each[1] == result.record.id]
        topics = {topic for topic, *_ in mine}
        assert topics >= {"shop.orders.retry.10s", "shop.orders.retry.10m", "shop.orders.retry.now"}
        assert {origin for *_, origin in mine} == {("orders", 3, 1)}
        assert {each[1] for each in ledger.seen} == {"orders/3/0", "orders/3/1"}
        assert [letter.id for letter in wc_app.dead_letters] == ["orders/3/0", "orders/3/1"]


def test_the_producers_id_goes_along() -> None:
    ledger = Ledger()
    with TestApp(ledger.app, config(charge=LEVELS)) as wc_app:
        wc_app.send("orders", 1, headers={"wc-id": "order-17"})
        wc_app.run_until_settled()
        ledger.broken = False
        wc_app.redrive()
    assert {each[1] for each in ledger.seen} == {"order-17"}
