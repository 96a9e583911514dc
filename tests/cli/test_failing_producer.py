"""A producer that gives up for good: it is replaced, and everybody hears of it meanwhile."""

from __future__ import annotations

import re
from time import monotonic, sleep

from tests.commands import Command, Commands, kafka_of
from tests.telemetry.asking import asked
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, ErrorCode
from window_consumer.model.log_events import LogEvent

SHOP = """
from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop", retry={"attempts": 1})
def charge(order: Record) -> None:
    if order.text() == "broken":
        raise ValueError
    print(f"charged {order.text()}\\n", end="", flush=True)
"""


def address_of(command: Command, what: str) -> str:
    command.wait_for(f"{what}: http")
    found = re.search(rf"{what}: (http://\S+) for", command.said)
    assert found is not None
    return found[1]


def until_ready(where: str, status: int) -> str:
    """Wait until a probe gets this status; return what it is told."""
    deadline = monotonic() + 60
    while monotonic() < deadline:
        found, text = asked(f"{where}/readyz")
        if found == status:
            return text
        sleep(0.05)
    raise AssertionError(f"{where} is not {status}")


def test_copies_are_written_once_the_broker_takes_them_again(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    """A worker whose right to write is taken away before its first copy, and given back."""
    embedded.create_topic("orders", 1)
    commands.application(SHOP)
    listen = {"listen": "127.0.0.1:0"}
    commands.configure(
        {"kafka": kafka_of(embedded), "workers": {"charge": {}}, "health": listen, "admin": listen}
    )
    command = commands.start("run", "shop:app")
    where, admin = address_of(command, "health"), address_of(command, "admin")
    until_ready(where, 200)
    refusals = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 100
    embedded.push_request_errors(ApiKey.INIT_PRODUCER_ID, *refusals)
    embedded.produce("orders", b"broken", partition=0)
    command.wait_for_event(LogEvent.PRODUCER_FAILED)
    reported = until_ready(where, 503)
    assert "CLUSTER_AUTHORIZATION_FAILED" in reported
    assert reported.startswith("charge: ")
    found = commands.run("doctor", "--json", "--for", "2s", "--url", admin, "--app", "shop:app")
    assert found.code == 3, found.said
    assert found.json["causes"][0]["cause"] == "cannot_write"
    embedded.produce("orders", b"fine", partition=0)
    command.wait_for("charged fine")
    command.wait_for_event(LogEvent.COPY_REFUSED)
    assert embedded.read_all("shop.orders.dlq") == []
    embedded.clear_request_errors(ApiKey.INIT_PRODUCER_ID)
    until_ready(where, 200)
    ended = command.stop()
    assert ended.code == 0, ended.said
    assert ended.summary() == {"processed": 1, "dead_lettered": 1}
    assert [each.value() for each in embedded.read_all("shop.orders.dlq")] == [b"broken"]
