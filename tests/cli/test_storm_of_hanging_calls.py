"""Many calls of one worker hang, and another worker of the process is well."""

from __future__ import annotations

from time import perf_counter

from tests.commands import Commands, kafka_of
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
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


ORDERED = """
import os
import time

from window_consumer import App, Record

app = App("shop")
STALL = {"after": "300ms", "max_abandoned": 2}
RETRY = {"on_failure": "overtake"}


@app.handler(
    "orders", group="shop", ordering="key", concurrency=40, stall=STALL, retry=RETRY,
    breaker={"enabled": False},
)
def charge(order: Record) -> None:
    say("begins", order)
    if not os.path.exists("timeouts"):
        while not os.path.exists("answer"):
            time.sleep(0.02)
    say("ends", order)


def say(what: str, order: Record) -> None:
    print(f"{what} {order.key.decode()} {order.offset}\\n", end="", flush=True)


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
    assert len(ended.lines_of(LogEvent.CALL_STALLED)) <= 10
    assert ended.lines_of(LogEvent.CALLS_OUTLIVED)
    outlived = (LogEvent.CALL_OUTLIVED, LogEvent.CALLS_OUTLIVED)
    assert sum(len(ended.lines_of(event)) for event in outlived) <= 2 * 2


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


def test_keys_wait_in_the_new_worker_for_calls_of_the_old_one(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    keys = [b"key%d" % number for number in range(8)]
    fill(embedded, 0)
    embedded.fill("orders", [NewRecord(b"order", key, partition=0) for key in keys * 5])
    commands.application(ORDERED)
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}, "ship": {}}})
    command = commands.start("run", "shop:app")
    command.wait_for_event(LogEvent.WORKER_GIVEN_UP, worker="charge")
    (commands.directory / "timeouts").touch()
    command.wait_for_event(LogEvent.WORKER_RESTARTED, worker="charge", calls_waited_for=len(keys))
    embedded.fill("orders", [NewRecord(b"order", b"another", partition=0)])
    command.wait_for("ends another")
    (commands.directory / "answer").touch()
    for key in keys:
        # Their first records may have become dead letters; all others end in the new worker.
        command.wait_for(f"ends {key.decode()} ", times=5)
    ended = command.stop()
    assert ended.code == 0, ended.said
    for key in keys:
        lines = [line.split() for line in ended.out.splitlines() if f" {key.decode()} " in line]
        assert [line[0] for line in lines] == ["begins", "ends"] * (len(lines) // 2), lines
        offsets = [int(line[2]) for line in lines]
        assert offsets == sorted(offsets)
    assert len(ended.lines_of(LogEvent.CALL_RETURNED)) == len(keys)
