"""Many calls of one worker hang, and another worker of the process is well."""

from __future__ import annotations

from time import perf_counter

from tests.commands import Commands, kafka_of
from window_consumer.kafka.embedded import (
    EmbeddedBroker,
    NewRecord,
)
from window_consumer.model.log_events import LogEvent

SHOP = """
import os
import threading

from window_consumer import App, Record

app = App("shop")
STALL = {"after": "300ms", "max_abandoned": 2}


@app.handler("orders", group="shop", concurrency=40, stall=STALL, breaker={"enabled": False})
def charge(order: Record) -> None:
    if order.value == b"hang" and not os.path.exists("timeouts"):
        threading.Event().wait()
    print(f"charged {order.text()}\\n", end="", flush=True)


@app.handler("parcels", group="shop-parcels", concurrency=1)
def ship(parcel: Record) -> None:
    print(f"shipped {parcel.text()}\\n", end="", flush=True)
"""


def fill(broker: EmbeddedBroker, hanging: int) -> None:
    broker.create_topic("orders", 1)
    broker.create_topic("parcels", 1)
    broker.fill("orders", [NewRecord(b"hang", partition=0)] * hanging)


def test_only_their_worker_is_started_anew_and_at_once(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    fill(embedded, 40)
    commands.application(SHOP)
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}, "ship": {}}})
    command = commands.start("run", "shop:app")
    command.wait_for_event(LogEvent.WORKER_GIVEN_UP, worker="charge")
    began = perf_counter()
    (commands.directory / "timeouts").touch()
    command.wait_for_event(LogEvent.WORKER_RESTARTED, worker="charge", restart=1)
    assert perf_counter() - began < 10, "stop_timeout is 20 s"
    embedded.produce("parcels", b"one", partition=0)
    command.wait_for("shipped one")
    # Those whose calls were abandoned first may have become dead letters before the stop.
    left = command.wait_for_event(LogEvent.WORKER_STOPPED, worker="charge", processed=0, retried=0)
    command.wait_for("charged hang", times=40 - left["dead_lettered"])
    ended = command.stop()
    assert ended.code == 0, ended.said
    assert ended.summary("ship") == {"processed": 1}
    stalled = ended.lines_of(LogEvent.CALL_STALLED)
    assert len(stalled) <= 10
    assert ended.lines_of(LogEvent.CALLS_OUTLIVED)
    outlived = (LogEvent.CALL_OUTLIVED, LogEvent.CALLS_OUTLIVED)
    assert sum(len(ended.lines_of(event)) for event in outlived) <= 2 * 2
    storm = [*stalled, *ended.lines_of(LogEvent.CALLS_STALLED)]
    assert any("(orders[0]@" in line["message"] for line in storm)


def test_a_worker_that_hangs_again_and_again_ends_the_process(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    fill(embedded, 40)
    commands.application(SHOP)
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}, "ship": {}}})
    command = commands.start("run", "shop:app")
    command.wait_for_event(LogEvent.WORKER_RESTARTED, worker="charge", restart=3)
    ended = command.wait()
    assert ended.code == 1
    ended.line_of(LogEvent.WORKER_STOPPED, worker="ship")


def test_a_process_with_one_worker_ends_without_waiting(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    fill(embedded, 200)  # more than there are slots: some wait behind calls that hang
    commands.application(SHOP)
    commands.configure(
        {"kafka": kafka_of(embedded), "workers": {"charge": {}, "ship": {"enabled": False}}}
    )
    command = commands.start("run", "shop:app")
    command.wait_for_event(LogEvent.WORKER_GIVEN_UP, worker="charge")
    began = perf_counter()
    ended = command.wait()
    assert (ended.code, perf_counter() - began < 10) == (1, True)
    assert ended.line_of(LogEvent.CALLS_UNFINISHED, worker="charge")["calls"] > 0
