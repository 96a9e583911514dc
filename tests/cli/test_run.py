"""``run``: several workers, overrides, an embedded broker, and what it says."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.commands import Command, Commands, kafka_of, produce
from window_consumer.kafka.embedded import (
    EmbeddedBroker,
    NewRecord,
)

SHOP = """
import logging

from window_consumer import App, Record

app = App("shop")
log = logging.getLogger("shop")


@app.handler("orders", group="shop-charge", retry={"attempts": 2, "backoff": "10ms..10ms"})
def charge(order: Record) -> None:
    log.warning("charging %s", order.text())
    if order.text() == "poison":
        raise ValueError("no card")
    if order.text() == "second try" and order.attempt == 1:
        raise ValueError("not yet")


@app.handler("parcels", group="shop-ship", stop_timeout="9s")
def ship(parcel: Record) -> None:
    log.warning("shipping %s", parcel.text())
"""


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    """Two workers on an embedded broker, with one record for each."""
    embedded.create_topic("orders", 2)
    embedded.create_topic("parcels", 1)
    embedded.produce("orders", b"order 1", partition=0)
    embedded.produce("parcels", b"parcel 1")
    commands.application(SHOP)
    commands.configure(configuration(embedded))
    return commands


def configuration(broker: EmbeddedBroker, **workers: Any) -> dict[str, Any]:
    return {"kafka": kafka_of(broker), "workers": workers or {"charge": {}, "ship": {}}}


def lines(command: Command) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.said.splitlines()]


def test_one_process_runs_all_workers_and_each_says_what_it_reads_and_did(shop: Commands) -> None:
    running = shop.start("run", "shop:app", "-c", "workers.yaml")
    running.wait_for("charging order 1")
    running.wait_for("shipping parcel 1")
    ended = running.stop()
    assert ended.code == 0
    assert ended.out == ""
    assert "charge: reads 2 partitions: orders[0], orders[1]" in ended.err
    assert "ship: reads 1 partition: parcels[0]" in ended.err
    did = "1 processed, 0 retried, 0 dead-lettered, 0 unfinished"
    assert ended.err.count(f"charge: stopped: {did}") == 1
    assert ended.err.count(f"ship: stopped: {did}") == 1


def test_only_runs_the_workers_that_it_names_and_set_wins_over_the_rest(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    shop.configure(configuration(embedded, charge={}, ship={"stop_timeout": "8s"}))
    only = ("--only", "ship", "--set", "workers.ship.stop_timeout=7s")
    running = shop.start("run", "shop:app", *only)
    running.wait_for("shipping parcel 1")
    ended = running.stop()
    assert ended.code == 0
    assert "draining for at most 7 s" in ended.err
    assert "charge" not in ended.err


def test_a_worker_that_is_disabled_does_not_run(shop: Commands, embedded: EmbeddedBroker) -> None:
    shop.configure(configuration(embedded, charge={"enabled": False}, ship={}))
    running = shop.start("run", "shop:app")
    running.wait_for("shipping parcel 1")
    assert "charge" not in running.stop().err


def test_a_handler_that_no_worker_runs_is_an_error(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    shop.configure(configuration(embedded, ship={}))
    ended = shop.run("run", "shop:app")
    assert (ended.code, ended.out) == (2, "")
    assert "no worker runs the handler 'charge'" in ended.err
    assert "enabled: false" in ended.err


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--only", "chrage"), "worker chrage: there is no such worker; there are charge, ship"),
        (("--set", "workers.charge.concurency=8"), "concurrency"),
        (("--set", "workers.charge"), "--set workers.charge"),
    ],
)
def test_a_worker_or_key_that_does_not_exist_is_wrong_usage(
    shop: Commands, option: tuple[str, str], told: str
) -> None:
    ended = shop.run("run", "shop:app", *option)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err


def test_an_embedded_broker_needs_nothing_else(commands: Commands) -> None:
    commands.application(SHOP)
    commands.configure({"workers": {"charge": {}, "ship": {"enabled": False}}})
    running = commands.start("run", "shop:app", "--embedded")
    running.wait_for("charge: reads 4 partitions")
    (line,) = (each for each in running.said.splitlines() if "embedded broker at" in each)
    produce(line.rpartition(" ")[2], "orders", b"order 1")
    running.wait_for("charging order 1")
    assert running.stop().code == 0


def test_json_lines_name_the_record_that_a_handler_logs_about(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.produce("orders", b"second try", partition=1)
    running = shop.start("run", "shop:app", "--log-format", "json")
    running.wait_for("charging second try", times=2)
    running.wait_for("shipping parcel 1")
    running.stop()
    said = lines(running)
    assert all({"time", "level", "logger", "thread", "message"} <= line.keys() for line in said)
    places = [
        (line["topic"], line["partition"], line["offset"], line["attempt"])
        for line in said
        if line["message"] == "charging second try"
    ]
    assert places == [("orders", 1, 0, 1), ("orders", 1, 0, 2)]
    (failure,) = (line for line in said if "failed at attempt" in line["message"])
    assert (failure["topic"], failure["partition"], failure["offset"]) == ("orders", 1, 0)
    assert all("offset" not in line for line in said if "charge: reads" in line["message"])


def test_text_lines_name_the_record_that_a_handler_logs_about(shop: Commands) -> None:
    running = shop.start("run", "shop:app")
    running.wait_for("charging order 1")
    assert "charging order 1 [orders[0]@0 attempt 1]" in running.stop().err


def test_a_kind_of_error_has_one_stack_in_ten_seconds_and_then_says_how_many_there_were(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.fill("orders", [NewRecord(b"poison", partition=0)] * 20)
    given = ("--only", "charge", "--log-format", "json")
    running = shop.start("run", "shop:app", *given, "--set", "workers.charge.breaker.enabled=false")
    running.wait_for("charging poison", times=40)
    # One at a time, until the quiet time is over: then it is known what failed before.
    number = 0
    counting = re.compile(r"orders\[1\]@(\d+) failed at attempt (\d).*more of this kind", re.DOTALL)
    while not any(map(counting.search, running.said.splitlines())):
        embedded.produce("orders", b"poison", partition=1)
        number += 1
        running.wait_for("charging poison", times=40 + 2 * number)
    running.stop()
    told = [line for line in lines(running) if "no card" in line["message"]]
    first = told[0]["message"]
    assert "orders[0]@" in first
    assert "failed at attempt 1 of 2 with ValueError: no card" in first
    assert "in charge" in first
    times = [datetime.fromisoformat(line["time"]) for line in told]
    assert all(later - earlier > timedelta(seconds=9) for earlier, later in pairwise(times))
    until = next(at for at, line in enumerate(told, 1) if counting.search(line["message"]))
    found = counting.search(told[until - 1]["message"])
    assert found is not None
    offset, attempt = map(int, found.groups())
    more = [re.findall(r"\((\d+) more of this kind", line["message"]) for line in told[:until]]
    assert until + sum(int(each) for (each,) in more[1:]) == 40 + 2 * offset + attempt


TUNED = """
import gc
import sys

from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    print(sys.getswitchinterval(), gc.get_threshold()[0], gc.get_freeze_count() > 0, flush=True)
"""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "0.005 50000 True"),
        (("--switch-interval", "1ms", "--gc-threshold", "0"), "0.001 700 False"),
    ],
)
def test_the_command_tunes_the_interpreter_as_it_is_told(
    shop: Commands, embedded: EmbeddedBroker, options: tuple[str, ...], told: str
) -> None:
    shop.application(TUNED)
    shop.configure(configuration(embedded, charge={}))
    running = shop.start("run", "shop:app", *options, fresh=True)
    running.wait_for(told)
    assert running.stop().code == 0
