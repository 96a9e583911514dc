"""Records with a header name that is not UTF-8, which a producer in another language wrote."""

from __future__ import annotations

from typing import Any

import pytest

from tests.commands import Commands, kafka_of
from tests.raw_records import write_raw
from tests.telemetry.collector import Collector
from window_consumer.kafka.embedded import EmbeddedBroker

HANDLERS = {
    "charge": """
@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    print(f"called {order.offset} with {order.headers}", flush=True)
""",
    "pay": """
@app.handler("orders", group="shop")
async def pay(order: Record) -> None:
    print(f"called {order.offset} with {order.headers}", flush=True)
""",
    "store": """
@app.batch_handler("orders", group="shop")
def store(orders: list[Record]) -> None:
    for order in orders:
        print(f"called {order.offset} with {order.headers}", flush=True)
""",
}


def application(handler: str) -> str:
    return f'from window_consumer import App, Record\n\napp = App("shop")\n{HANDLERS[handler]}'


DLQ = "shop.orders.dlq"


def fill(broker: EmbeddedBroker, topic: str = "orders") -> None:
    """Write three records; the name of a header of the second one is broken."""
    broker.produce(topic, b"first", partition=0, headers=[("a", b"1")])
    write_raw(broker.bootstrap, topic, b"\x00value", key=b"\xfekey")
    broker.produce(topic, b"last", partition=0, headers=[("a", b"1")])


@pytest.mark.parametrize(
    ("handler", "worker"),
    [
        ("charge", {"ordering": "key", "retry": {"on_failure": "block"}}),
        ("charge", {"pool": "processes"}),
        ("pay", {"ordering": "partition", "retry": {"on_failure": "overtake"}}),
        ("store", {}),
    ],
)
def test_they_become_dead_letters_and_the_others_are_called(
    commands: Commands, embedded: EmbeddedBroker, handler: str, worker: dict[str, Any]
) -> None:
    embedded.create_topic("orders", 1)
    fill(embedded)
    commands.application(application(handler))
    commands.configure(
        {
            "kafka": kafka_of(embedded),
            "workers": {handler: {**worker, "concurrency": 2}},
            "trace": {"sample": "100%"},
            "audit": {"enabled": True, "directory": "counts", "ids": True},
        }
    )
    with Collector() as collector:
        command = commands.start("run", "shop:app", env=collector.env)
        command.wait_for("called 2 with")
        ended = command.stop()
    assert ended.code == 0, ended.said
    assert "called 0 with [('a', b'1')]" in ended.out
    assert "called 1" not in ended.out
    assert "unfinished" not in ended.summary()
    (letter,) = embedded.read_all(DLQ)
    headers = dict(letter.headers())
    assert (letter.key(), letter.value()) == (b"\xfekey", b"\x00value")
    assert (headers["wc-reason"], headers["wc-headers-lost"]) == (b"DECODE", b"1")
    assert headers["wc-orig-offset"] == b"1"


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    """Where somebody else has written such a record among the dead letters."""
    embedded.create_topic("orders", 1)
    embedded.create_topic(DLQ, 1)
    embedded.create_topic("shop.orders.retry.now", 1)
    embedded.create_topic("shop.dlq.state", 1)
    fill(embedded, DLQ)
    commands.application(application("charge"))
    commands.configure(
        {
            "kafka": kafka_of(embedded),
            "workers": {"charge": {"topics": ["orders"], "group": "shop"}},
        }
    )
    return commands


def test_dead_letters_like_that_are_listed_and_shown(shop: Commands) -> None:
    listed = shop.run("dlq", "list", "--json")
    assert listed.code == 0, listed.err
    shown = shop.run("dlq", "show", f"{DLQ}/0/1", "--json").json
    assert shown["headers"] == [["wc-headers-lost", "1"]]
    assert shown["key"]["hex"] == b"\xfekey".hex()


def test_dead_letters_like_that_are_put_back_and_called(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    assert shop.run("dlq", "redrive", "--json").json["redrives"][0]["redriven"] == 3
    (copy,) = (m for m in embedded.read_all("shop.orders.retry.now") if m.key() == b"\xfekey")
    assert (copy.value(), dict(copy.headers())["wc-headers-lost"]) == (b"\x00value", b"1")
