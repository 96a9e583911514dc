"""``admin: {listen: ...}``: what people and ``top`` get from a worker that runs."""

from __future__ import annotations

import re
import socket

import pytest

from tests.commands import Command, Commands, kafka_of
from tests.web.admin import Asking
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.telemetry.pictures import snapshot_of

SHOP = """
import threading
from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop", retry={"attempts": 1})
def charge(order: Record) -> None:
    if order.text() == "hang":
        wait_for_the_bank()
    if order.text() == "broken":
        raise ValueError
    print("charged", order.text(), flush=True)


def wait_for_the_bank() -> None:
    print("hangs", flush=True)
    threading.Event().wait()
"""


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    embedded.create_topic("orders", 2)
    commands.application(SHOP)
    configure(commands, embedded)
    return commands


def configure(commands: Commands, embedded: EmbeddedBroker, **admin: object) -> None:
    section = {"listen": "127.0.0.1:0", **admin}
    worker = {"stop_timeout": "0.1s"}
    config = {"kafka": kafka_of(embedded), "workers": {"charge": worker}, "admin": section}
    commands.configure(config)


def admin_of(command: Command) -> Asking:
    command.wait_for("/ for the live window")
    found = re.search(r"admin: http://127.0.0.1:(\d+)/ for", command.said)
    assert found is not None
    return Asking(int(found[1]))


def test_a_worker_shows_its_windows_and_where_a_call_hangs(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    command = shop.start("run", "shop:app")
    ask = admin_of(command)
    command.wait_for("charge: reads 2 partitions")
    embedded.produce("orders", b"one", partition=0)
    command.wait_for("charged one")
    embedded.produce("orders", b"hang", partition=0)
    command.wait_for("hangs")
    (worker,) = ask("/api/windows?stacks=1").json["workers"]
    assert (worker["name"], worker["group"], worker["handlers"]) == ("charge", "shop", ["charge"])
    assert (worker["phase"], worker["ready"], worker["slots"]) == ("running", True, 16)
    picture = snapshot_of(worker["snapshot"])
    assert [each.open for each in picture.partitions] == [1, 0]
    (call,) = worker["stacks"]
    assert (call["topic"], call["partition"], call["offset"]) == ("orders", 0, 1)
    assert "in wait_for_the_bank\n    threading.Event().wait()" in call["stack"]
    assert "thread_pool.py" not in call["stack"]
    command.stop()


def test_a_port_that_is_taken_is_told_before_anything_starts(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        configure(shop, embedded, listen=f"127.0.0.1:{port}")
        ended = shop.run("run", "shop:app")
    assert ended.code == 2
    assert f"admin.listen: cannot listen on 127.0.0.1:{port}: " in ended.err
    assert "reads" not in ended.err


@pytest.mark.parametrize("arguments", [("check",), ("run",)])
def test_an_address_for_others_needs_token_and_tls(
    shop: Commands, embedded: EmbeddedBroker, arguments: tuple[str, ...]
) -> None:
    configure(shop, embedded, listen="0.0.0.0:0", token="t" * 16)
    ended = shop.run(*arguments, "shop:app")
    assert ended.code == 2
    assert "admin.listen: is 0.0.0.0:0, which others get to, too, without admin.tls" in ended.err
    assert "insecure: true" in ended.err
