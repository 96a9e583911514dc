"""Parking in a worker on the embedded broker."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.commands import Commands, kafka_of
from tests.reading import read_all
from window_consumer import App, Fatal, Record
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord

WAIT_S = 60.0
LEVELS = ["200ms", "400ms"]


class ParkingShop:
    """A worker that parks, and the values that its handler got, by key."""

    def __init__(self, broker: EmbeddedBroker, folder: Path):
        self.broker = broker
        self.file = folder / "workers.yaml"
        self.fails: Callable[[bytes, bytes], bool] = lambda _key, _value: False
        self.called: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self.done: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self.retry: dict[str, Any] = {"on_failure": "park", "attempts": 1, "levels": LEVELS}
        broker.create_topic("orders", 1)

    def produce(self, *records: tuple[bytes, bytes]) -> None:
        for key, value in records:
            self.broker.produce("orders", value, key=key, partition=0)

    @property
    def parked(self) -> int:
        """How many copies the park topic holds, handled or not."""
        return sum(self.broker.end_offsets("g.orders.park").values())

    @property
    def dead(self) -> int:
        """How many dead letters there are."""
        return sum(self.broker.end_offsets("g.orders.dlq").values())

    @contextmanager
    def running(self) -> Iterator[App]:
        app = App("shop")

        @app.handler("orders")
        def charge(record: Record) -> None:
            key, value = record.key or b"", record.value or b""
            self.called[key].append(value)
            if self.fails(key, value):
                raise ValueError(f"{value!r} fails")
            self.done[key].append(value)

        worker = {"group": "g", "ordering": "key", "retry": self.retry}
        content = {"kafka": kafka_of(self.broker), "workers": {"charge": worker}}
        self.file.write_text(yaml.safe_dump(content))
        with app.start(self.file, start_timeout=WAIT_S):
            yield app

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline, (dict(self.called), dict(self.done))
            time.sleep(0.02)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_a_key_that_fails_keeps_its_order_and_the_others_go_on(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    shop = ParkingShop(embedded, tmp_path)
    shop.fails = lambda key, value: (
        key == b"bad" and value == b"0" and shop.called[key].count(b"0") < 3
    )
    for value in numbers(20):
        shop.produce((b"bad", value), (b"good", value))
    with shop.running():
        shop.until(lambda: len(shop.done[b"good"]) == 20)
        assert not shop.done[b"bad"], "its first record waits in a level"
        shop.until(lambda: len(shop.done[b"bad"]) == 20)
    assert shop.called[b"bad"] == [b"0", b"0", *numbers(20)]
    assert shop.done[b"good"] == numbers(20)
    assert shop.parked == 19


def test_a_restart_finds_what_is_in_the_ladder(embedded: EmbeddedBroker, tmp_path: Path) -> None:
    shop = ParkingShop(embedded, tmp_path)
    shop.retry["levels"] = ["2s"]
    heals = threading.Event()
    shop.fails = lambda key, _value: key == b"bad" and not heals.is_set()
    shop.produce(*((key, value) for value in numbers(5) for key in (b"bad", b"good")))
    with shop.running():
        shop.until(lambda: shop.parked == 4)
    heals.set()
    shop.produce((b"bad", b"5"), (b"good", b"5"))
    with shop.running():
        shop.until(lambda: len(shop.done[b"good"]) == 6)
        shop.until(lambda: len(shop.done[b"bad"]) == 6)
    assert shop.done[b"bad"] == numbers(6)


def test_a_park_topic_is_drained_after_the_setting_has_changed(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    shop = ParkingShop(embedded, tmp_path)
    shop.retry["levels"] = ["2s"]
    shop.fails = lambda key, _value: key == b"bad" and len(shop.called[key]) < 2
    shop.produce(*((b"bad", value) for value in numbers(5)))
    with shop.running():
        shop.until(lambda: shop.parked == 4)
    shop.retry["on_failure"] = "overtake"
    with shop.running():
        shop.until(lambda: len(shop.done[b"bad"]) == 5)
    assert shop.done[b"bad"] == numbers(5)


def test_one_redrive_brings_a_head_and_those_that_followed_it_back_in_order(
    embedded: EmbeddedBroker, tmp_path: Path, commands: Commands
) -> None:
    shop = ParkingShop(embedded, tmp_path)
    shop.retry |= {"park": {"on_dead": "follow"}, "levels": ["200ms", "400ms", "1s", "5s", "10s"]}
    heals = threading.Event()

    def fails(key: bytes, value: bytes) -> bool:
        if (key, value) != (b"bad", b"0") or heals.is_set():
            return False
        if shop.parked == 4:
            raise Fatal("never")
        return True

    shop.fails = fails
    shop.produce(*((key, value) for value in numbers(5) for key in (b"bad", b"good")))
    with shop.running():
        shop.until(lambda: shop.dead == 5)
    assert set(shop.called[b"bad"]) == {b"0"}, "those behind it are not called"
    letters = read_all(embedded.client_settings(), "g.orders.dlq")
    assert [each.value() for each in letters] == numbers(5)
    follow = [dict(each.headers() or ()).get("wc-follows") for each in letters]
    assert follow == [None, *([b"orders/0/0"] * 4)]
    heals.set()
    assert commands.run("dlq", "redrive").code == 0
    with shop.running():
        shop.until(lambda: len(shop.done[b"bad"]) == 5)
    assert shop.done[b"bad"] == numbers(5)


def test_after_a_restart_the_dead_letters_say_who_follows(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    shop = ParkingShop(embedded, tmp_path)
    shop.retry |= {"park": {"on_dead": "follow"}}
    for topic in ("g.orders.park", "g.orders.dlq"):
        embedded.create_topic(topic, 1)
    embedded.fill("g.orders.park", [copy_of(1, b"PARKED"), copy_of(2, b"PARKED")])
    embedded.fill("g.orders.dlq", [copy_of(0, b"FATAL"), copy_of(1, b"FOLLOWS")])
    with shop.running():
        shop.until(lambda: shop.dead == 4)
        shop.produce(*([(b"bad", each) for each in numbers(4)]))
        shop.until(lambda: len(shop.done[b"bad"]) == 4)
    letters = read_all(embedded.client_settings(), "g.orders.dlq")
    assert [each.value() for each in letters] == [b"0", b"1", b"1", b"2"]


def copy_of(number: int, reason: bytes) -> NewRecord:
    headers: list[tuple[str, bytes | None]] = [
        ("wc-id", b"orders/0/%d" % number),
        ("wc-orig-topic", b"orders"),
        ("wc-orig-partition", b"0"),
        ("wc-orig-offset", b"%d" % number),
        ("wc-format", b"1"),
        ("wc-reason", reason),
        ("wc-attempts", b"0"),
    ]
    return NewRecord(b"%d" % number, b"bad", headers, 0)
