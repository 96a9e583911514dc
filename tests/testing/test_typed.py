"""Handlers that take an object: what becomes of records that cannot be made into one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.typed_messages import Attrs
from tests.testing.shops import config
from window_consumer import App, Record, Undecodable
from window_consumer.testing import DEAD_LETTERED, DONE, DROPPED, MOVED, TestApp

GOOD, BAD = {"id": 7, "customer": "ada"}, {"id": "seven"}


class Typed:
    """An application with a typed handler."""

    def __init__(self) -> None:
        self.app = App("shop", version="7")
        self.seen: list[Any] = []
        self.refused: list[BaseException] = []
        self.app.handler("orders", group="shop", ordering="key")(self.charge)
        self.app.middleware(self.watch)

    def charge(self, order: Attrs, record: Record) -> None:
        self.seen.append((order, record.attempt))
        if order.customer == "nobody":
            raise ConnectionError

    def watch(self, record: Record, call_next: Any) -> object:
        try:
            return call_next(record)
        except Undecodable as error:
            self.refused.append(error)
            raise

    def run(self, **worker: Any) -> TestApp:
        retry = {"attempts": 3, "backoff": "1s..1s", "on_failure": "overtake"}
        return TestApp(self.app, config(charge={"retry": retry, **worker}))


@pytest.fixture
def shop() -> Typed:
    return Typed()


def test_the_handler_gets_the_object_and_the_record(shop: Typed) -> None:
    with shop.run() as wc_app:
        assert wc_app.send("orders", GOOD).outcome is DONE
    assert shop.seen == [(Attrs(7, "ada"), 1)]


def test_what_cannot_be_decoded_is_a_dead_letter_at_once_and_whole(shop: Typed) -> None:
    with shop.run() as wc_app:
        result = wc_app.send("orders", BAD, key="c", headers={"h": "1"})
        assert result.outcome is DEAD_LETTERED
        (letter,) = wc_app.dead_letters
    assert (letter.reason, letter.handler) == ("DECODE", "charge")
    assert letter.error_class == "window_consumer.model.errors.Undecodable"
    assert "valid Attrs: " in (letter.error_message or "")
    assert "$.id" in (letter.error_message or "")
    assert "$.customer" in (letter.error_message or "")
    assert (letter.key, letter.value) == (b"c", b'{"id": "seven"}')
    assert shop.seen == []
    assert [type(error) for error in shop.refused] == [Undecodable]


def test_later_records_of_the_key_go_on(shop: Typed) -> None:
    with shop.run() as wc_app:
        wc_app.send("orders", BAD, key="c")
        assert wc_app.send("orders", GOOD, key="c").outcome is DONE


def test_a_copy_in_a_level_that_cannot_be_decoded_ends_as_on_the_source() -> None:
    app, failing = App("shop"), [True]

    def decode(value: bytes) -> int:
        if not failing[0]:
            raise ValueError("no schema")
        return int(value)

    @app.handler("orders", group="shop", value=decode)
    def charge(_number: int) -> None:
        raise ConnectionError

    retry = {"attempts": 1, "levels": ["10s", "10m"]}
    with TestApp(app, config(charge={"retry": retry})) as wc_app:
        result = wc_app.send("orders", "7")
        assert result.outcome is MOVED
        failing[0] = False
        wc_app.advance("10s")
        assert result.outcome is DEAD_LETTERED
        (letter,) = wc_app.dead_letters
    assert letter.reason == "DECODE"
    assert "int: no schema" in (letter.error_message or "")


def test_when_spent_says_what_becomes_of_it(shop: Typed) -> None:
    with shop.run(retry={"when_spent": "drop", "on_failure": "overtake"}) as wc_app:
        assert wc_app.send("orders", BAD).outcome is DROPPED
        assert wc_app.dead_letters == []


def test_outages_are_not_reported_by_values_that_do_not_fit(shop: Typed) -> None:
    with shop.run() as wc_app:
        for _ in range(60):
            wc_app.send("orders", BAD)
        wc_app.advance("1s")
        assert len(wc_app.dead_letters) == 60
        assert wc_app.send("orders", GOOD).outcome is DONE
