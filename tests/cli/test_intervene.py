"""``window-consumer skip`` and ``dead-letter``: one blocked record is taken out of the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.commands import Commands, Ended, kafka_of
from window_consumer.admin.interventions import WORDS
from window_consumer.engine.guards.interventions import InterventionResult
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

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
        self.url = self.worker.wait_for_event(LogEvent.ADMIN_STARTED)["url"].removesuffix("/")

    def command(self, name: str, record: str, worker: str = "charge", *more: str) -> Ended:
        where = ("--worker", worker, "--record", record, "--url", self.url)
        return self.commands.run(name, *where, *more, env={"WINDOW_CONSUMER_TOKEN": TOKEN})


@pytest.fixture
def blocked(shop: Commands, embedded: EmbeddedBroker) -> Iterator[Shop]:
    """A worker in which a record blocks another one of its key."""
    running = Shop(shop)
    running.worker.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, worker="charge", partitions=2)
    embedded.produce("orders", b"poison", key=b"anna", partition=0)
    running.worker.wait_for_event(LogEvent.CALL_FAILED, attempt=1)
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
    place: dict[str, Any] = {"worker": "charge", "topic": "orders", "partition": 0, "offset": 0}
    asked: dict[str, Any] = {
        "client": "127.0.0.1",
        "wanted": "skip",
        "result": InterventionResult.SKIPPED,
    }
    blocked.worker.wait_for_event(LogEvent.ADMIN_RECORD_ENDED, **place, **asked)
    again = blocked.command("skip", "orders/0/0")
    assert again.code == 1
    assert again.err.startswith(f"error: orders/0/0: {WORDS[InterventionResult.FINISHED]} [WC")
    assert blocked.worker.stop().summary() == {"processed": 1, "skipped": 1}
    assert committed(embedded) == 2


def test_a_blocked_record_is_sent_to_the_dead_letters_with_the_reason_manual(
    blocked: Shop, embedded: EmbeddedBroker
) -> None:
    ended = blocked.command("dead-letter", "orders/0/0", "charge", "--json")
    assert ended.code == 0
    asked = {"worker": "charge", "record": "orders/0/0"}
    assert ended.json == {**asked, "verdict": InterventionResult.DEAD_LETTERED}
    blocked.worker.wait_for("charged next")
    (copy,) = embedded.read_all("shop.orders.dlq")
    headers = dict(copy.headers() or [])
    assert (copy.key(), copy.value()) == (b"anna", b"poison")
    assert headers["wc-reason"] == b"MANUAL"
    assert headers["wc-error-class"] == b"ValueError"
    assert blocked.worker.stop().summary() == {"processed": 1, "dead_lettered": 1}


def test_what_was_skipped_is_printed_as_json(blocked: Shop) -> None:
    ended = blocked.command("skip", "orders/0/0", "charge", "--json")
    asked = {"worker": "charge", "record": "orders/0/0"}
    assert (ended.code, ended.json) == (0, {**asked, "verdict": InterventionResult.SKIPPED})


@pytest.mark.parametrize("name", ["skip", "dead-letter"])
def test_what_cannot_be_taken_out_of_the_way_is_reported_with_the_reason(
    name: str, blocked: Shop, embedded: EmbeddedBroker
) -> None:
    embedded.produce("orders", b"hang", key=b"hugo", partition=0)
    blocked.worker.wait_for("hangs")
    for record, worker, why in (
        ("orders/0/1", "charge", InterventionResult.NOT_FAILED),
        ("orders/0/2", "charge", InterventionResult.RUNNING),
        ("orders/0/7", "charge", InterventionResult.NOT_IN_WINDOW),
        ("orders/9/0", "charge", InterventionResult.NOT_ASSIGNED),
        ("orders/0/0", "nobody", InterventionResult.NOT_ASSIGNED),
    ):
        ended = blocked.command(name, record, worker)
        assert ended.code == 1
        assert ended.err.startswith(f"error: {record}: {WORDS[why]}")


@pytest.mark.parametrize("record", ["orders", "orders/0", "orders/0/x", "/0/0", "a b/0/0"])
def test_what_names_no_record_is_wrong_usage(record: str, commands: Commands) -> None:
    ended = commands.run("skip", "--worker", "charge", "--record", record)
    assert ended.code == 2
    assert "write TOPIC/PARTITION/OFFSET" in ended.err


def test_who_is_not_there_or_has_no_token_is_reported(shop: Commands) -> None:
    where = ("--worker", "charge", "--record", "orders/0/0")
    nobody = shop.run("skip", *where, "--url", "http://127.0.0.1:1")
    assert (nobody.code, "http://127.0.0.1:1" in nobody.err) == (1, True)
    running = Shop(shop)
    refused = shop.run("skip", *where, "--url", running.url)
    assert (refused.code, "WINDOW_CONSUMER_TOKEN" in refused.err) == (1, True)
    assert shop.run("skip", *where, "--url", "ftp://x").code == 2
    running.worker.stop()


def test_of_several_processes_the_one_that_has_it_is_asked(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    running = Shop(shop, "--processes", "2")
    for number in "12":
        running.worker.wait_for_event(
            LogEvent.PARTITIONS_ASSIGNED, process=int(number), partitions=1
        )
    embedded.produce("orders", b"poison", key=b"anna", partition=0)
    embedded.produce("orders", b"poison", key=b"anna", partition=1)
    running.worker.wait_for_event(LogEvent.CALL_FAILED, attempt=1, times=2)
    for partition in "01":
        ended = running.command("skip", f"orders/{partition}/0")
        assert (ended.code, ended.out) == (0, f"orders/{partition}/0 is skipped\n")
        place: dict[str, Any] = {"topic": "orders", "partition": int(partition), "offset": 0}
        running.worker.wait_for_event(
            LogEvent.ADMIN_RECORD_ENDED, **place, result=InterventionResult.SKIPPED
        )
    assert running.command("skip", "orders/7/0").code == 1
    assert len(running.worker.stop().lines_of(LogEvent.ADMIN_RECORD_ENDED)) == 3
