"""``window-consumer skip`` and ``dead-letter``: one blocked record is taken out of the way."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.commands import Commands, Ended, kafka_of
from window_consumer.kafka.embedded import EmbeddedBroker

SHOP = """
import threading
from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop", ordering="key")
def charge(order: Record) -> None:
    if order.text() == "hang":
        print("hangs", flush=True)
        threading.Event().wait()
    if order.text() == "poison":
        raise ValueError(order.text())
    print(f"charged {order.text()}\\n", end="", flush=True)
"""
TOKEN = "0123456789abcdef"  # noqa: S105 - no secret of anybody


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    embedded.create_topic("orders", 2)
    commands.application(SHOP)
    retry = {"attempts": 1, "backoff": "10m..10m", "on_failure": "block"}
    commands.configure(
        {
            "kafka": kafka_of(embedded),
            "workers": {"charge": {"stop_timeout": "0.1s", "retry": retry}},
            "admin": {"listen": "127.0.0.1:0", "token": TOKEN},
        }
    )
    return commands


class Shop:
    """A worker that runs, and its commands."""

    def __init__(self, commands: Commands, *more: str):
        self.commands = commands
        self.worker = commands.start("run", "shop:app", *more)
        self.worker.wait_for("for the live window")
        found = re.search(r"admin: (http://127.0.0.1:\d+)/ for", self.worker.said)
        assert found is not None
        self.url = found[1]

    def command(self, name: str, record: str, worker: str = "charge") -> Ended:
        where = ("--worker", worker, "--record", record, "--url", self.url)
        return self.commands.run(name, *where, env={"WINDOW_CONSUMER_TOKEN": TOKEN})


@pytest.fixture
def blocked(shop: Commands, embedded: EmbeddedBroker) -> Iterator[Shop]:
    """A worker in which a record blocks another one of its key."""
    running = Shop(shop)
    running.worker.wait_for("charge: reads 2 partitions")
    embedded.produce("orders", b"poison", key=b"anna", partition=0)
    running.worker.wait_for("failed at attempt 1")
    embedded.produce("orders", b"next", key=b"anna", partition=0)
    yield running
    running.worker.stop()


def committed(embedded: EmbeddedBroker) -> int:
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - only here

    client = Consumer({**embedded.client_settings(), "group.id": "shop"})
    (found,) = client.committed([TopicPartition("orders", 0)], timeout=30)
    client.close()
    return int(found.offset)


def test_a_blocked_record_is_skipped_and_its_key_goes_on(
    blocked: Shop, embedded: EmbeddedBroker
) -> None:
    ended = blocked.command("skip", "orders/0/0")
    assert (ended.code, ended.out) == (0, "orders/0/0 is skipped\n")
    blocked.worker.wait_for("charged next")
    blocked.worker.wait_for("charge: 127.0.0.1 asked to skip orders[0]@0: it is skipped")
    again = blocked.command("skip", "orders/0/0")
    assert (again.code, again.err) == (1, "error: orders/0/0: it is finished already\n")
    said = blocked.worker.stop().said
    assert "1 processed, 0 retried, 0 dead-lettered, 1 skipped, 0 unfinished" in said
    assert committed(embedded) == 2


def test_a_blocked_record_is_sent_to_the_dead_letters_with_the_reason_manual(
    blocked: Shop, embedded: EmbeddedBroker
) -> None:
    ended = blocked.command("dead-letter", "orders/0/0")
    assert (ended.code, ended.out) == (0, "orders/0/0 is among the dead letters\n")
    blocked.worker.wait_for("charged next")
    (copy,) = embedded.read_all("shop.orders.dlq")
    headers = dict(copy.headers() or [])
    assert (copy.key(), copy.value()) == (b"anna", b"poison")
    assert headers["wc-reason"] == b"MANUAL"
    assert headers["wc-error-class"] == b"ValueError"
    assert "0 retried, 1 dead-lettered, 0 unfinished" in blocked.worker.stop().said


@pytest.mark.parametrize("name", ["skip", "dead-letter"])
def test_what_cannot_be_taken_out_of_the_way_is_told_with_the_reason(
    name: str, blocked: Shop, embedded: EmbeddedBroker
) -> None:
    embedded.produce("orders", b"hang", key=b"hugo", partition=0)
    blocked.worker.wait_for("hangs")
    for record, worker, why in (
        ("orders/0/1", "charge", "no call of it has failed"),
        ("orders/0/2", "charge", "its call is running"),
        ("orders/0/7", "charge", "no record with that offset is in the window"),
        ("orders/9/0", "charge", "no worker of that name has that partition here"),
        ("orders/0/0", "nobody", "no worker of that name has that partition here"),
    ):
        ended = blocked.command(name, record, worker)
        assert ended.code == 1
        assert ended.err.startswith(f"error: {record}: {why}")


@pytest.mark.parametrize("record", ["orders", "orders/0", "orders/0/x", "/0/0", "a b/0/0"])
def test_what_names_no_record_is_wrong_usage(record: str, commands: Commands) -> None:
    ended = commands.run("skip", "--worker", "charge", "--record", record)
    assert ended.code == 2
    assert "write TOPIC/PARTITION/OFFSET" in ended.err


def test_who_is_not_there_or_has_no_token_is_told(shop: Commands) -> None:
    where = ("--worker", "charge", "--record", "orders/0/0")
    nobody = shop.run("skip", *where, "--url", "http://127.0.0.1:1")
    assert (nobody.code, "nothing listens there" in nobody.err) == (1, True)
    running = Shop(shop)
    refused = shop.run("skip", *where, "--url", running.url)
    assert (refused.code, "a token is needed" in refused.err) == (1, True)
    assert shop.run("skip", *where, "--url", "ftp://x").code == 2
    running.worker.stop()


def test_of_several_processes_the_one_that_has_it_is_asked(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    running = Shop(shop, "--processes", "2")
    for number in "12":
        running.worker.wait_for(f"{number}/wc-charge-poll charge: reads 1 partition")
    embedded.produce("orders", b"poison", key=b"anna", partition=0)
    embedded.produce("orders", b"poison", key=b"anna", partition=1)
    running.worker.wait_for("failed at attempt 1", times=2)
    for partition in "01":
        ended = running.command("skip", f"orders/{partition}/0")
        assert (ended.code, ended.out) == (0, f"orders/{partition}/0 is skipped\n")
        running.worker.wait_for(f"127.0.0.1 asked to skip orders[{partition}]@0: it is skipped")
    assert running.command("skip", "orders/7/0").code == 1
    assert running.worker.said.count("asked to skip") == 3
    running.worker.stop()
