"""``health: {listen: ...}``: what probes and scrapers get from a worker that runs."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.commands import Command, Commands, kafka_of
from tests.telemetry.asking import asked
from window_consumer.kafka.embedded import EmbeddedBroker
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


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    embedded.create_topic("orders", 2)
    commands.application(SHOP)
    configure(commands, embedded)
    return commands


def configure(
    commands: Commands, embedded: EmbeddedBroker, listen: str = "127.0.0.1:0", **sections: Any
) -> None:
    kafka = kafka_of(embedded)
    health = {"listen": listen}
    commands.configure({"kafka": kafka, "workers": {"charge": {}}, "health": health, **sections})


def address_of(command: Command) -> str:
    url: str = command.wait_for_event(LogEvent.HEALTH_STARTED)["url"]
    assert url.startswith("http://")
    return url


def figure(where: str, name: str) -> float:
    """Return a figure once it is there and is not 0."""
    deadline = monotonic() + 60
    while monotonic() < deadline:
        _, text = asked(f"{where}/metrics")
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        if found is not None and float(found[1]):
            return float(found[1])
        sleep(0.05)
    raise AssertionError(name)


def test_a_worker_tells_how_it_is_and_what_it_has_done(
    shop: Commands, embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("no directory")
    spool = {"sample": "100%", "way": "spool", "directory": "taken", "flush": "100ms"}
    configure(shop, embedded, trace=spool, audit={"enabled": True, "directory": "audit"})
    command = shop.start("run", "shop:app")
    where = address_of(command)
    assert asked(f"{where}/livez") == (200, "live\n")
    command.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, worker="charge", partitions=2)
    assert asked(f"{where}/readyz")[0] == 200
    embedded.produce("orders", b"broken", partition=0)
    embedded.produce("orders", b"one", partition=0)
    command.wait_for("charged one")
    # The line is written within the call, which is counted when it has returned.
    assert figure(where, 'window_consumer_records_processed_total{worker="charge"}') == 1
    status, text = asked(f"{where}/metrics")
    assert status == 200
    assert (
        'window_consumer_worker_ready{worker="charge",group="shop",ordering="unordered"} 1' in text
    )
    assert 'lag_duration_seconds{worker="charge",topic="orders",partition="0"} 0' in text
    assert "broken" not in text
    # What is not one worker's: the trace, which finds no room, and the audit.
    assert figure(where, 'window_consumer_trace_dropped_total{reason="disk"}') >= 1
    assert figure(where, "window_consumer_trace_blocked_seconds") > 0
    assert figure(where, "window_consumer_audit_counts_total") >= 1
    assert command.stop().code == 0


def test_copies_answer_at_one_address(shop: Commands) -> None:
    command = shop.start("run", "shop:app", "--processes", "2")
    where = address_of(command)
    for process in (1, 2):
        command.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, process=process, partitions=1)
    assert asked(f"{where}/livez") == (200, "live\n")
    assert asked(f"{where}/readyz")[0] == 200
    text = asked(f"{where}/metrics")[1]
    assert text.count("# TYPE window_consumer_slots gauge") == 1
    for number in "12":
        assert f'window_consumer_slots{{process="{number}",worker="charge"}} 16' in text
    assert command.stop().code == 0


def test_a_port_that_is_taken_is_reported_before_anything_starts(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        configure(shop, embedded, f"127.0.0.1:{port}")
        ended = shop.run("run", "shop:app")
    assert ended.code == 2
    assert re.search(rf"\bhealth\.listen: .*127\.0\.0\.1:{port}\b", ended.err)
    assert not ended.lines_of(LogEvent.PARTITIONS_ASSIGNED)
