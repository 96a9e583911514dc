"""Several handlers and a time to live, from the file to the topics of a broker."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from tests.commands import DEADLINE_S, Commands, kafka_of
from tests.golden_texts import Golden
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
from window_consumer import App, Record, header

app = App("shop")
MINE = {"group": "shop", "ordering": "key",
        "retry": {"attempts": 2, "backoff": "10ms..10ms", "on_failure": "block"}}


@app.handler("orders", **MINE, when=header("type") == "paid")
def paid(order: Record) -> None:
    if order.text() == "poison":
        raise ValueError("broken")
    print(f"paid {order.text()}\\n", end="", flush=True)


@app.handler("orders", **MINE)
def refunded(order: Record) -> None:
    print(f"refunded {order.text()}\\n", end="", flush=True)


@app.middleware
def around(record, call_next):
    print(f"around {record.text()}\\n", end="", flush=True)
    return call_next(record)
"""


def a_shop(commands: Commands, broker: EmbeddedBroker, **worker: object) -> None:
    broker.create_topic("orders", 1)
    commands.application(SHOP)
    shop = {"handler": ["paid", "refunded"], **worker}
    commands.configure({"kafka": kafka_of(broker), "workers": {"shop": shop}})


def headers_in(broker: EmbeddedBroker, topic: str) -> list[dict[str, bytes]]:
    return [dict(message.headers() or ()) for message in broker.read_all(topic)]


def committed(broker: EmbeddedBroker) -> int:
    return committed_offsets(broker.client_settings(), "shop", "orders")[0]


def send(broker: EmbeddedBroker, *records: tuple[bytes, list[tuple[str, bytes]], int]) -> None:
    """Write values with headers and times."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for value, headers, timestamp in records:
        producer.produce("orders", value, b"a", headers=[*headers], timestamp=timestamp)
    assert producer.flush(DEADLINE_S) == 0


ROUTES = {"refunded": "header('type') ~ 'ref*' and key != 'staff'"}


def test_each_record_goes_to_its_handler_and_the_others_to_the_dead_letters(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    retry = {"on_failure": "overtake"}
    a_shop(commands, embedded, routes=ROUTES, retry=retry)
    produce = embedded.produce
    produce("orders", b"one", key=b"a", headers=[("type", b"paid")])
    produce("orders", b"two", key=b"a", headers=[("type", b"refund")])
    produce("orders", b"three", key=b"staff", headers=[("type", b"refund")])
    produce("orders", b"four", key=b"a")
    produce("orders", b"poison", key=b"a", headers=[("type", b"paid")])
    produce("orders", b"last", key=b"a", headers=[("type", b"paid")])
    worker = commands.start("run", "shop:app")
    worker.wait_for("paid last")
    ended = worker.stop()
    assert ended.code == 0
    assert "paid one" in ended.out
    assert "refunded two" in ended.out
    assert "around four" not in ended.out, "middleware surrounds calls, and there was none"
    (unroutable, *_) = ended.lines_of(LogEvent.CALL_FAILED, handler="paid,refunded")
    assert unroutable["topic"] == "orders"
    assert unroutable["key"] in {"staff", "a"}, "records of two keys may run in either order"
    found = [
        (each["wc-reason"], each["wc-handler"], each["wc-attempts"])
        for each in headers_in(embedded, "shop.orders.dlq")
    ]
    assert sorted(found) == [
        (b"RETRIES_EXHAUSTED", b"paid", b"2"),
        (b"UNROUTABLE", b"paid,refunded", b"0"),
        (b"UNROUTABLE", b"paid,refunded", b"0"),
    ]
    assert committed(embedded) == 6


def test_what_is_skipped_is_finished_and_counted(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    a_shop(commands, embedded, routes=ROUTES, otherwise="skip")
    embedded.produce("orders", b"one", key=b"a")
    embedded.produce("orders", b"last", key=b"a", headers=[("type", b"paid")])
    worker = commands.start("run", "shop:app")
    worker.wait_for("paid last")
    ended = worker.stop()
    assert ended.code == 0
    assert ended.summary() == {"processed": 1, "skipped": 1}
    assert committed(embedded) == 2


def test_a_worker_stops_at_what_nobody_is_for_if_it_is_configured_to(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    a_shop(commands, embedded, routes=ROUTES, otherwise="stop")
    embedded.produce("orders", b"one", key=b"a")
    ended = commands.run("run", "shop:app")
    assert ended.code == 1
    failure = ended.line_of(LogEvent.WORKER_FAILED, worker="shop", error="WorkerStoppedError")
    assert {"orders[0]@0", "paid,", "refunded,", "otherwise"} <= {*failure["message"].split()}


def test_expired_records_leave_a_blocking_worker_at_once(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    ttl = {"header": "ttl", "unit": "s", "format": "int64be"}
    a_shop(commands, embedded, ttl=ttl)
    now_ms = time.time_ns() // 1_000_000
    ten, hour = ([("ttl", seconds.to_bytes(8, "big"))] for seconds in (10, 3600))
    old = now_ms - 60_000
    send(
        embedded,
        (b"old", ten, old),
        (b"lasting", [], old),
        (b"odd", [("ttl", b"10")], old),
        (b"new", hour, now_ms),  # however late the worker is
    )
    worker = commands.start("run", "shop:app")
    worker.wait_for("refunded new")
    ended = worker.stop()
    assert ended.code == 0
    assert "refunded old" not in ended.out
    assert "refunded lasting" in ended.out
    assert "refunded odd" in ended.out
    ignored = ended.line_of(LogEvent.TTL_IGNORED)["message"]
    assert all(each in ignored for each in ("'ttl'", "int64be", "b'10'"))
    (headers,) = headers_in(embedded, "shop.orders.dlq")
    assert (headers["wc-reason"], headers["wc-attempts"]) == (b"EXPIRED", b"0")
    assert headers["wc-error-message"].endswith(b"its time to live was 10 s")
    assert committed(embedded) == 4


def test_check_says_who_is_called_for_what(
    commands: Commands, embedded: EmbeddedBroker, golden: Golden
) -> None:
    a_shop(commands, embedded, routes=ROUTES, ttl="30s", on_expired="drop")
    ended = commands.run("check", "shop:app")
    assert ended.code == 0, ended.err
    golden(ended.out)
    found = commands.run("check", "shop:app", "--json").json["workers"]["shop"]
    golden(found["routes"][0])
    assert (found["otherwise"], found["ttl"], found["on_expired"]) == ("dead_letter", "30s", "drop")
