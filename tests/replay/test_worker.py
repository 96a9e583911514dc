"""Workers that get replayed records: with once, traced, audited, beside live ones."""

from __future__ import annotations

import sqlite3

import pytest

from tests import reading
from tests.commands import Commands
from tests.replay.shop import ReplayShop
from window_consumer.kafka.embedded import EmbeddedBroker

ONCE = """
import sqlalchemy as sa
from window_consumer import App, Record
from window_consumer.database import Once

app = App("shop")
once = Once(lambda: sa.create_engine("sqlite:///shop.db"){more})


@app.handler(once=once)
def charge(order: Record) -> None:
    print(f"charged {{order.key.decode()}}", flush=True)
"""

SHOP = """
from window_consumer import App, Fatal, Record

app = App("shop")


@app.handler()
def charge(order: Record) -> None:
    if order.key == b"key 1":
        raise Fatal("no card")
    print(f"charged {order.origin} attempt {order.attempt}", flush=True)
"""


@pytest.mark.parametrize("command", ["replay", "rewind"])
def test_a_worker_with_once_is_exit_2_and_is_warned_of_new_ids(
    command: str, shop: ReplayShop
) -> None:
    shop.commands.application(ONCE.format(more=""))
    shop.produce(3)
    place = {"replay": "--from-offset", "rewind": "--to"}[command]
    ended = shop.commands.run(command, "shop:app", "--worker", "charge", place, "0:0")
    assert ended.code == 2
    assert "--new-ids" in ended.err
    assert not shop.copies()


@pytest.mark.parametrize("by", ["", ", by=lambda order: order.key"])
def test_with_new_ids_a_worker_with_once_handles_records_again(by: str, shop: ReplayShop) -> None:
    shop.commands.application(ONCE.format(more=by))
    made = shop.commands.run("once", "ddl", "shop:app")
    if made.code == 0:
        _execute(shop.commands, made.out)
    shop.produce(3)
    worker = shop.commands.start("run", "shop:app")
    worker.wait_for("charged key 2")
    ended = shop.commands.run(
        *("replay", "shop:app", "--worker", "charge", "--from-offset", "0:0", "--new-ids")
    )
    assert ended.code == 0, ended.said
    worker.wait_for("charged", times=6)
    assert worker.stop().summary()["processed"] == 6


def _execute(commands: Commands, ddl: str) -> None:
    with sqlite3.connect(commands.directory / "shop.db") as connection:
        connection.executescript(ddl)


def test_a_running_worker_calls_the_copies_and_the_audit_balances(
    shop: ReplayShop, embedded: EmbeddedBroker
) -> None:
    shop.commands.application(SHOP)
    charge = {"topics": [shop.source], "group": shop.group}
    audit = {"enabled": True, "directory": "audit", "ids": True}
    shop.commands.configure({"kafka": shop.kafka, "workers": {"charge": charge}, "audit": audit})
    shop.produce(6)
    worker = shop.commands.start("run", "shop:app")
    worker.wait_for(f"charged {shop.source}/0/5 attempt 1")
    assert shop.replay("--from-offset", "0:0")["replayed"] == 6
    worker.wait_for(f"charged {shop.source}/0/5 attempt 1", times=2)
    assert worker.stop().summary() == {"processed": 10, "dead_lettered": 2}
    entry = reading.balances(embedded.read_all("wc.audit"))[shop.entry]
    assert {str(tier): each.count for tier, each in entry.tiers.items()} == {
        "replayed": 6,
        "finished": 5,
        "dead_lettered": 1,
    }
    assert entry.verdict.value == "balanced"
    dead = shop.commands.run("dlq", "list", "--where", "header('wc-replay') != null", "--json")
    assert dead.code == 0, dead.said
    (topic,) = dead.json["topics"].values()
    assert topic["open"] == 1


def test_the_trace_of_a_replayed_record_has_a_step_for_it(
    shop: ReplayShop, embedded: EmbeddedBroker
) -> None:
    shop.commands.application(SHOP)
    charge = {"topics": [shop.source], "group": shop.group}
    trace = {"sample": "100%"}
    shop.commands.configure({"kafka": shop.kafka, "workers": {"charge": charge}, "trace": trace})
    embedded.create_topic("wc.trace", 1)
    shop.produce(1)
    shop.replay("--from-offset", "0:0")
    worker = shop.commands.start("run", "shop:app")
    worker.wait_for("charged", times=2)
    assert worker.stop().code == 0
    written = reading.events(embedded.read_all("wc.trace"))
    events = [each for each in written if each.topic == shop.entry]
    assert sorted(each.step for each in events) == ["processed", "received", "replayed"]
    assert {each.record_id for each in events} == {f"{shop.source}/0/0"}


def test_attempts_of_a_replayed_record_start_over(shop: ReplayShop) -> None:
    shop.produce(3)
    shop.replay("--from-offset", "0:0")
    shop.commands.application(SHOP)
    worker = shop.commands.start("run", "shop:app")
    for offset in (0, 2):
        worker.wait_for(f"charged {shop.source}/0/{offset} attempt 1", times=2)
    ended = worker.stop()
    assert ended.code == 0
    for offset in (0, 2):
        assert ended.out.count(f"charged {shop.source}/0/{offset} attempt 1") == 2
    assert "attempt 2" not in ended.out
