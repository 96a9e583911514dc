"""``run --processes N``: whole processes that are kept alive and drained together."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.cli.test_processes import is_alive
from tests.commands import Command, Commands, kafka_of
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
import os

from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop", retry={"attempts": 1, "when_spent": "stop"})
def charge(order: Record) -> None:
    text = f"charged {order.text()}: {os.environ['WINDOW_CONSUMER_PROCESS']}\\n"
    os.write(1, text.encode())  # in one piece: others write to the same pipe
    if order.text() == "broken":
        raise ValueError
"""


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    embedded.create_topic("orders", 4)
    commands.application(SHOP)
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": {}}})
    return commands


def pids_of(command: Command) -> list[int]:
    return [line["pid"] for line in command.lines_of(LogEvent.REPLICA_STARTED)]


def test_copies_share_the_work_are_replaced_and_drained_together(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    command = shop.start("run", "shop:app", "--processes", "2")
    for process in (1, 2):
        command.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, process=process, partitions=2)
    for partition in range(4):
        embedded.produce("orders", b"one", partition=partition)
    command.wait_for("charged one: 1\n", times=2)
    command.wait_for("charged one: 2\n", times=2)
    os.kill(pids_of(command)[0], signal.SIGKILL)
    command.wait_for_event(LogEvent.REPLICA_CRASHED, replica=1, exit_code=-signal.SIGKILL)
    command.wait_for_event(LogEvent.REPLICA_STARTED, replica=1, times=2)
    ended = command.stop()
    assert ended.code == 0, ended.said
    assert len(ended.lines_of(LogEvent.REPLICAS_STOPPED)) == 1
    ended.line_of(LogEvent.REPLICA_ENDED, replica=2, exit_code=0)
    assert not any(map(is_alive, pids_of(command)))


def test_copies_drain_when_their_supervisor_is_killed(shop: Commands) -> None:
    command = shop.start("run", "shop:app", "--processes", "2")
    for process in (1, 2):
        command.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, process=process)
    command.process.kill()
    wait_until(lambda: not any(map(is_alive, pids_of(command))))
    command.wait_for_event(LogEvent.WORKER_STOPPED, worker="charge", processed=0, times=2)


def test_a_second_signal_ends_all_at_once(shop: Commands, embedded: EmbeddedBroker) -> None:
    shop.application(SHOP + "    import time; time.sleep(600)\n")
    embedded.produce("orders", b"slow", partition=0)
    command = shop.start("run", "shop:app", "--processes", "1")
    command.wait_for("charged slow")
    command.signal(signal.SIGINT)
    command.wait_for_event(LogEvent.STOP_REQUESTED)
    command.signal(signal.SIGINT)
    assert command.wait().code == 130
    # What ends with its parent ends after it.
    wait_until(lambda: not any(map(is_alive, pids_of(command))))


def test_what_all_copies_would_refuse_is_refused_once(shop: Commands) -> None:
    for wrong in ("0", "many"):
        ended = shop.run("run", "shop:app", "--processes", wrong)
        assert ended.code == 2
        assert "--processes" in ended.err
    ended = shop.run("run", "shop:app", "--processes", "2", "--embedded")
    assert (ended.code, "--embedded" in ended.err, "--processes" in ended.err) == (2, True, True)
    ended = shop.run("run", "shop:app", "--processes", "2", "--set", "workers.charge.memory=1")
    assert (ended.code, ended.err.count("workers.charge.memory")) == (2, 1)
    static = "workers.charge.kafka={group.instance.id: shop}"
    ended = shop.run("run", "shop:app", "--processes", "2", "--set", static)
    assert (ended.code, "write shop-${WINDOW_CONSUMER_PROCESS}" in ended.err) == (2, True)


def test_what_only_the_cluster_refuses_ends_all_of_them(shop: Commands) -> None:
    topics = "workers.charge.topics=[missing]"
    ended = shop.run("run", "shop:app", "--processes", "2", "--set", topics)
    assert ended.code == 2
    assert re.search(r"^error: process [12]: .*\bmissing\b", ended.err, re.MULTILINE)
