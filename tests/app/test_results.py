"""Records that handlers return, on the embedded broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from window_consumer import App, Produce, Record
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.runtime.running import Running

DEADLINE_S = 60.0


class Shop:
    """One worker whose handler returns what a test says."""

    def __init__(self, broker: EmbeddedBroker, directory: Path):
        self.broker = broker
        self._directory = directory
        self.behave: Callable[[Record], object] = lambda _: None
        self.calls: list[tuple[int, int]] = []
        self.is_async = False

    def start(self, **worker: Any) -> Running:
        app = App("shop")

        def charge(order: Record) -> object:
            self.calls.append((order.partition, order.offset))
            return self.behave(order)

        async def charge_later(order: Record) -> object:
            await asyncio.sleep(0.001)
            return charge(order)

        app.handler("orders", group="shop", name="charge")(
            charge_later if self.is_async else charge
        )

        kafka = {
            "bootstrap.servers": self.broker.bootstrap,
            "producer": {"topic.metadata.propagation.max.ms": 200},
        }
        file = self._directory / "workers.yaml"
        file.write_text(json.dumps({"kafka": kafka, "workers": {"charge": worker}}))
        return app.start(file, start_timeout=DEADLINE_S)


@pytest.fixture
def shop(embedded: EmbeddedBroker, tmp_path: Path) -> Shop:
    for topic in ("orders", "invoices"):
        embedded.create_topic(topic, 2)
    return Shop(embedded, tmp_path)


def test_what_handlers_return_is_produced_with_all_its_parts(shop: Shop) -> None:
    shop.behave = lambda order: [
        Produce("invoices", order.key, "a", headers={"of": order.value}, partition=1),
        Produce("invoices", "other", "b", timestamp=1_700_000_000_000),
    ]
    shop.broker.fill("orders", [NewRecord(b"7", b"k")])
    with shop.start() as running:
        wait_until(lambda: running.counters["charge"].processed)
        assert running.counters["charge"].produced == 2
    found = {m.value(): m for m in shop.broker.read_all("invoices")}
    first, second = found[b"a"], found[b"b"]
    assert (first.key(), first.headers(), first.partition()) == (b"k", [("of", b"7")], 1)
    assert (second.key(), second.headers()) == (b"other", None)
    assert second.timestamp()[1] == 1_700_000_000_000


def test_coroutines_return_results_as_functions_do(shop: Shop) -> None:
    shop.is_async = True
    shop.behave = lambda order: Produce("invoices", order.key, order.value)
    shop.broker.fill("orders", [NewRecord(b"%d" % number, b"k") for number in range(10)])
    with shop.start(ordering="key", retry={"on_failure": "overtake"}) as running:
        wait_until(lambda: running.counters["charge"].processed == 10)
    found = [int(m.value()) for m in shop.broker.read_all("invoices")]
    assert found == list(range(10))


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_results_of_a_key_have_the_order_of_their_inputs(shop: Shop, ordering: str) -> None:
    keys, rounds = [b"k%d" % number for number in range(20)], 10
    shop.behave = lambda order: Produce("invoices", order.key, order.value)
    shop.broker.fill("orders", [NewRecord(b"%d" % n, key) for n in range(rounds) for key in keys])
    with shop.start(ordering=ordering, retry={"on_failure": "overtake"}) as running:
        wait_until(lambda: running.counters["charge"].processed == len(keys) * rounds)
    by_key: dict[bytes, list[int]] = {}
    for message in shop.broker.read_all("invoices"):
        by_key.setdefault(message.key(), []).append(int(message.value()))
    assert by_key == {key: list(range(rounds)) for key in keys}


def test_a_result_for_a_topic_that_is_not_there_fails_its_record_and_makes_no_topic(
    shop: Shop,
) -> None:
    shop.behave = lambda _: Produce("invoicse", "k", "v")
    shop.broker.fill("orders", [NewRecord(b"7", b"k")])
    with shop.start(retry={"attempts": 2, "backoff": "10ms..10ms"}) as running:
        wait_until(lambda: running.counters["charge"].dead_lettered)
    assert len(shop.calls) == 2
    (letter,) = shop.broker.read_all("shop.orders.dlq")
    headers = dict(letter.headers())
    assert headers["wc-reason"] == b"RETRIES_EXHAUSTED"
    assert headers["wc-error-class"] == b"window_consumer.model.errors.ResultRefusedError"
    assert headers["wc-error-message"].startswith(b"the result for invoicse, was refused: ")
    with pytest.raises(Exception, match="invoicse"):
        shop.broker.partitions("invoicse")
