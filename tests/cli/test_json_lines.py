"""``--log-format json``: what a handler's own lines say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.commands import Commands, kafka_of
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
import logging

from window_consumer import App, Record

app = App("shop")
log = logging.getLogger("shop")
EXTRA = {"event": "theirs", "amount": 7, "tags": ["a"], "time": "theirs", "odd": {(1, 2): 3}}


@app.handler("orders", group="shop", name="charge", retry={"attempts": 1})
DEF charge(order: Record) -> None:
    log.warning("charging", extra=EXTRA)
    if order.value == b"bad":
        raise ValueError
"""


@pytest.mark.parametrize(
    ("define", "worker"),
    [("def", {}), ("def", {"pool": "processes"}), ("async def", {})],
    ids=["threads", "processes", "coroutines"],
)
def test_a_line_of_a_handler_has_its_extra_and_names_worker_handler_and_key(
    commands: Commands, embedded: EmbeddedBroker, define: str, worker: dict[str, Any]
) -> None:
    embedded.create_topic("orders", 1)
    commands.application(SHOP.replace("DEF", define))
    commands.configure(
        {
            "kafka": kafka_of(embedded),
            "workers": {"payments": {"handler": "charge", "concurrency": 1, **worker}},
        }
    )
    embedded.produce("orders", b"good", key=b"customer 1", partition=0)
    embedded.produce("orders", b"bad", key=b"customer 2", partition=0)
    command = commands.start("run", "shop:app", "--log-format", "json")
    command.wait_for_event(LogEvent.CALL_FAILED)
    command.stop()
    said = [json.loads(line) for line in command.said.splitlines() if line.startswith("{")]
    for line in (each for each in said if each["message"] == "charging"):
        assert (line["amount"], line["tags"], line["extra_time"]) == (7, ["a"], "theirs")
        assert line["time"].startswith("20")
        assert "odd" in line
        assert line["event"] == "theirs"
        assert (line["worker"], line["handler"]) == ("payments", "charge")
    assert [line["key"] for line in said if line["message"] == "charging"] == [
        "customer 1",
        "customer 2",
    ]
    (failed,) = (line for line in said if line["event"] == LogEvent.CALL_FAILED)
    assert (failed["worker"], failed["handler"], failed["key"]) == (
        "payments",
        "charge",
        "customer 2",
    )
    assert all(
        line["worker"] == "payments" for line in said if "wc-payments-poll" in line["thread"]
    )


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_a_key_that_is_masked_is_in_no_line(
    commands: Commands, embedded: EmbeddedBroker, pool: str
) -> None:
    embedded.create_topic("orders", 1)
    commands.application(SHOP.replace("DEF", "def"))
    commands.configure(
        {
            "kafka": kafka_of(embedded),
            "workers": {"charge": {"pool": pool}},
            "mask": [{"topics": ["orders"], "whole": ["key"]}],
        }
    )
    embedded.produce("orders", b"bad", key=b"customer 1", partition=0)
    command = commands.start("run", "shop:app", "--log-format", "json")
    command.wait_for_event(LogEvent.CALL_FAILED)
    said = command.stop().said
    assert "customer 1" not in said
    (line,) = (each for each in map(json.loads, said.splitlines()) if each["message"] == "charging")
    assert line["key"]
