"""``run``: several workers, overrides, an embedded broker, and what it says."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.commands import Command, Commands, Line, kafka_of, produce
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.log_events import LogEvent

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
    if order.text() == "again" and order.attempt == 1:
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
    reads = ended.line_of(LogEvent.PARTITIONS_ASSIGNED, worker="charge", partitions=2)
    assert reads["message"].endswith(" orders[0], orders[1]")
    reads = ended.line_of(LogEvent.PARTITIONS_ASSIGNED, worker="ship", partitions=1)
    assert reads["message"].endswith(" parcels[0]")
    assert ended.summary("charge") == ended.summary("ship") == {"processed": 1}


def test_only_runs_the_workers_that_it_names_and_set_wins_over_the_rest(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    shop.configure(configuration(embedded, charge={}, ship={"stop_timeout": "8s"}))
    only = ("--only", "ship", "--set", "workers.ship.stop_timeout=7s")
    running = shop.start("run", "shop:app", *only)
    running.wait_for("shipping parcel 1")
    ended = running.stop()
    assert ended.code == 0
    ended.line_of(LogEvent.STOP_REQUESTED, timeout_s=7)
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
    assert "'charge'" in ended.err
    assert "enabled: false" in ended.err


@pytest.mark.parametrize(
    ("option", "reported"),
    [
        (("--only", "chrage"), "charge, ship"),
        (("--set", "workers.charge.concurency=8"), "concurrency"),
        (("--set", "workers.charge"), "--set workers.charge"),
    ],
)
def test_a_worker_or_key_that_does_not_exist_is_wrong_usage(
    shop: Commands, option: tuple[str, str], reported: str
) -> None:
    ended = shop.run("run", "shop:app", *option)
    assert (ended.code, ended.out) == (2, "")
    assert reported in ended.err


def test_an_embedded_broker_needs_nothing_else(commands: Commands) -> None:
    commands.application(SHOP)
    commands.configure({"workers": {"charge": {}, "ship": {"enabled": False}}})
    running = commands.start("run", "shop:app", "--embedded")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, worker="charge", partitions=4)
    (line,) = (each for each in running.said.splitlines() if each.startswith("embedded broker"))
    produce(line.rpartition(" ")[2], "orders", b"order 1")
    running.wait_for("charging order 1")
    assert running.stop().code == 0


def test_json_lines_name_the_record_that_a_handler_logs_about(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.produce("orders", b"again", partition=1)
    running = shop.start("run", "shop:app", "--log-format", "json")
    running.wait_for("charging again", times=2)
    running.wait_for("shipping parcel 1")
    running.stop()
    said = lines(running)
    assert all({"time", "level", "logger", "thread", "message"} <= line.keys() for line in said)
    places = [
        (line["topic"], line["partition"], line["offset"], line["attempt"])
        for line in said
        if line["message"] == "charging again"
    ]
    assert places == [("orders", 1, 0, 1), ("orders", 1, 0, 2)]
    (failure,) = (line for line in said if line.get("event") == LogEvent.CALL_FAILED)
    assert (failure["topic"], failure["partition"], failure["offset"]) == ("orders", 1, 0)
    reads = [line for line in said if line.get("event") == LogEvent.PARTITIONS_ASSIGNED]
    assert reads
    assert all("offset" not in line for line in reads)


def test_text_lines_name_the_record_that_a_handler_logs_about(shop: Commands) -> None:
    running = shop.start("run", "shop:app", "--log-format", "text")
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

    def counting() -> list[Line]:
        """Lines of the second partition that say how many there were."""
        reported = running.lines_of(LogEvent.CALL_FAILED, partition=1, error="ValueError")
        return [line for line in reported if line["suppressed"]]

    while not counting():
        embedded.produce("orders", b"poison", partition=1)
        number += 1
        running.wait_for("charging poison", times=40 + 2 * number)
    running.stop()
    reported = running.lines_of(LogEvent.CALL_FAILED, error="ValueError")
    first = reported[0]
    assert (first["topic"], first["partition"], first["attempt"]) == ("orders", 0, 1)
    assert "ValueError: no card" in first["message"]
    assert "in charge" in first["message"]
    times = [datetime.fromisoformat(line["time"]) for line in reported]
    assert all(later - earlier > timedelta(seconds=9) for earlier, later in pairwise(times))
    last = counting()[0]
    until = reported.index(last) + 1
    more = [line["suppressed"] for line in reported[:until]]
    assert more[0] == 0
    assert all(
        f"({each} more" in line["message"]
        for each, line in zip(more, reported, strict=False)
        if each
    )
    assert until + sum(more) == 40 + 2 * last["offset"] + last["attempt"]


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
    ("options", "reported"),
    [
        ((), "0.005 50000 True"),
        (("--switch-interval", "1ms", "--gc-threshold", "0"), "0.001 700 False"),
    ],
)
def test_the_command_tunes_the_interpreter_as_configured(
    shop: Commands, embedded: EmbeddedBroker, options: tuple[str, ...], reported: str
) -> None:
    shop.application(TUNED)
    shop.configure(configuration(embedded, charge={}))
    running = shop.start("run", "shop:app", *options, fresh=True)
    running.wait_for(reported)
    assert running.stop().code == 0
