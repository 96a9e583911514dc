"""``admin: {listen: ...}``: what people and ``top`` get from a worker that runs."""

from __future__ import annotations

import json
import os
import re
import socket
from errno import EADDRINUSE, ENOENT
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.admin.admin import Asking
from tests.commands import DEADLINE_S, Command, Commands, kafka_of
from tests.golden_texts import Golden
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.figures.worker_snapshot import from_json

SHOP = """
import threading
from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop", retry={"attempts": 1})
def charge(order: Record) -> None:
    if order.text() == "hang":
        wait_for_the_bank()
    if "broken" in order.text():
        raise ValueError(order.text())
    print(f"charged {order.text()}\\n", end="", flush=True)


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


def configure(
    commands: Commands, embedded: EmbeddedBroker, whole: tuple[str, ...] = (), **admin: object
) -> None:
    section = {"listen": "127.0.0.1:0", **admin}
    worker = {
        "stop_timeout": "0.1s",
        "stall": {"after": "300ms", "action": "report"},
        "retry": {"attempts": 2, "backoff": "10m..10m"},
    }
    rule = {"topics": ["orders"], "fields": ["iban", "x-auth"]}
    commands.configure(
        {
            "kafka": kafka_of(embedded),
            "workers": {"charge": worker},
            "admin": section,
            "mask": [rule | ({"whole": list(whole)} if whole else {})],
        }
    )


def admin_of(command: Command) -> Asking:
    url = urlsplit(command.wait_for_event(LogEvent.ADMIN_STARTED)["url"])
    assert (url.scheme, url.hostname, url.path) == ("http", "127.0.0.1", "/")
    assert url.port is not None
    return Asking(url.port)


def test_a_worker_shows_its_windows_and_where_a_call_hangs(
    shop: Commands, embedded: EmbeddedBroker, golden: Golden
) -> None:
    configure(shop, embedded, whole=("key",))
    command = shop.start("run", "shop:app")
    ask = admin_of(command)
    command.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, worker="charge", partitions=2)
    embedded.produce("orders", b"one", partition=0)
    command.wait_for("charged one")
    embedded.produce("orders", b"hang", key=b"anna", partition=0)
    command.wait_for("hangs")
    place: dict[str, Any] = {"topic": "orders", "partition": 0, "offset": 1, "attempt": 1}
    assert command.wait_for_event(LogEvent.CALL_STALLED, **place)["key"] == "***"
    embedded.produce("orders", b'{"iban": "DE4711", "is": "broken"}', partition=1)
    command.wait_for_event(LogEvent.CALL_FAILED, attempt=1)
    links = ask("/api/session").json["links"]
    assert [path for path, _ in links] == ["./", "groups", "dead-letters"]
    assert [each["name"] for each in ask("/api/groups").json["workers"]] == ["charge"]
    assert ask("/api/dead-letters").status == 200
    (worker,) = workers_of(ask, "/api/windows?stacks=1")
    assert (worker["name"], worker["group"], worker["handlers"]) == ("charge", "shop", ["charge"])
    assert (worker["phase"], worker["ready"], worker["slots"]) == ("running", True, 16)
    picture = from_json(worker["snapshot"], WindowsSnapshot)
    assert [each.open for each in picture.partitions] == [1, 1]
    (call,) = worker["stacks"]
    assert (call["topic"], call["partition"], call["offset"]) == ("orders", 0, 1)
    assert "in wait_for_the_bank\n    threading.Event().wait()" in call["stack"]
    assert "thread_pool.py" not in call["stack"]
    (record,) = worker["failing"]
    assert (record["partition"], record["offset"], record["attempts"]) == (1, 0, 1)
    assert record["error"] == 'ValueError: {"iban": "***", "is": "broken"}'
    golden(record["state"])
    command.stop()


def test_a_port_that_is_taken_is_reported_before_anything_starts(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        configure(shop, embedded, listen=f"127.0.0.1:{port}")
        ended = shop.run("run", "shop:app")
    assert ended.code == 2
    assert re.search(
        rf"\badmin\.listen: .*127\.0\.0\.1:{port}: {os.strerror(EADDRINUSE)}", ended.err
    )
    assert not ended.lines_of(LogEvent.PARTITIONS_ASSIGNED)


@pytest.mark.parametrize("arguments", [("check",), ("run",)])
def test_an_address_for_others_needs_token_and_tls(
    shop: Commands, embedded: EmbeddedBroker, arguments: tuple[str, ...]
) -> None:
    configure(shop, embedded, listen="0.0.0.0:0", token="t" * 16)
    ended = shop.run(*arguments, "shop:app")
    assert ended.code == 2
    assert re.search(r"\badmin\.listen: .*0\.0\.0\.0:0.*\badmin\.tls\b", ended.err)
    assert "insecure: true" in ended.err


@pytest.mark.parametrize("arguments", [("check",), ("run",)])
def test_a_certificate_that_cannot_be_read_is_reported_with_its_line(
    shop: Commands, embedded: EmbeddedBroker, arguments: tuple[str, ...]
) -> None:
    configure(shop, embedded, tls={"certificate": "tls/tls.crt", "key": "tls/tls.key"})
    ended = shop.run(*arguments, "shop:app")
    assert ended.code == 2
    for key, name in (("certificate", "tls.crt"), ("key", "tls.key")):
        found = rf"workers.yaml:\d+: admin.tls.{key}: .*{name}.*: {os.strerror(ENOENT)}"
        assert re.search(found, ended.err)


def test_a_person_looks_into_a_cell_and_pauses_what_hangs(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    command = shop.start("run", "shop:app")
    ask = admin_of(command)
    command.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, worker="charge", partitions=2)
    headers = [("X-Auth", b"sesame"), ("tenant", b"eu")]
    embedded.produce("orders", b"hang", key=b"<script>", partition=0, headers=headers)
    command.wait_for("hangs")
    place = "/api/workers/charge/partitions/orders/0"
    cell = ask(f"{place}/cells/0").json
    assert (cell["first_offset"], cell["open"], cell["number"]) == (0, 1, 0)
    assert cell["records"][0]["key"] == "<script>"
    assert "in wait_for_the_bank" in cell["calls"][0]["stack"]
    assert ask(f"{place}/records/0").json["number"] == 0
    assert "hang" not in json.dumps(cell["records"])  # the value
    assert cell["records"][0]["headers"] == [["X-Auth", "***"], ["tenant", "eu"]]
    assert not cell["values"]
    assert ask(f"{place}/records/0/value", "POST").status == 403
    assert [ask(f"{place}/{rest}").status for rest in ("cells/7", "records/7")] == [404, 404]
    assert ask(f"{place}/pause", "POST").json == {"paused": True}
    command.wait_for_event(LogEvent.READING_PAUSED, topic="orders", partition=0)
    embedded.produce("orders", b"two", partition=0)
    embedded.produce("orders", b"three", partition=1)
    command.wait_for("charged three")
    assert ask("/api/workers/charge/pause?reason=bank&user=mallory", "POST").status == 200
    (worker,) = workers_of(ask, "/api/frame")
    seen = worker["snapshot"]
    assert (seen["pause"]["user"], seen["pause"]["reason"]) == ("", "bank")
    command.wait_for_event(LogEvent.READING_PAUSED, reason="bank")
    assert (seen["halted"], [each["halted"] for each in seen["partitions"]]) == (True, [True, True])
    assert ask("/api/workers/charge/resume", "POST").status == 200
    assert "charged two" not in command.said
    assert ask(f"{place}/resume", "POST").json == {"paused": False}
    command.wait_for("charged two")
    for nothing in ("charge/partitions/orders/9/pause", "nobody/pause", "charge/stop"):
        assert ask(f"/api/workers/{nothing}", "POST").status == 404
    assert ask("/api/workers/charge/pause").status == 405
    command.stop()


def test_copies_are_shown_and_paused_at_one_address(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    configure(shop, embedded, values=True)
    command = shop.start("run", "shop:app", "--processes", "2")
    ask = admin_of(command)
    for process in (1, 2):
        command.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, process=process, partitions=1)
    for path in ("/api/windows", "/api/frame"):
        reported = workers_of(ask, path, count=2)
        assert [each["process"] for each in reported] == ["1", "2"]

    assert ask("/api/workers/charge/pause?process=2", "POST").status == 200
    assert halted(ask) == [False, True]
    assert ask("/api/workers/charge/pause?reason=bank", "POST").status == 200
    assert halted(ask) == [True, True]
    paused = [each["snapshot"]["pause"] for each in workers_of(ask, "/api/frame", count=2)]
    assert [each["reason"] for each in paused] == ["bank", "bank"]
    assert ask("/api/workers/charge/concurrency/3?process=2", "POST").json["concurrency"] == 3
    assert limits(ask) == [None, 3]
    assert ask("/api/workers/charge/concurrency/4?reason=bank", "POST").status == 200
    assert limits(ask) == [4, 4]
    assert ask("/api/workers/charge/concurrency/99", "POST").json["result"] == "too many"
    assert ask("/api/workers/nobody/concurrency/4", "POST").status == 404
    assert ask("/api/workers/charge/concurrency/auto", "POST").status == 200
    assert limits(ask) == [None, None]
    assert ask("/api/workers/charge/partitions/orders/0/pause", "POST").status == 200
    assert ask("/api/workers/charge/partitions/orders/7/pause", "POST").status == 404
    assert ask("/api/workers/charge/pause?process=3", "POST").status == 404
    assert ask("/api/workers/charge/partitions/orders/0/cells/0").status == 404
    embedded.produce("orders", b'{"iban": "DE4711", "to": "anna"}', partition=1)
    record = "/api/workers/charge/partitions/orders/1/records/0"
    until = monotonic() + DEADLINE_S
    while ask(record).status == 404:
        assert monotonic() < until
    assert ask(record).json["values"]
    reported = ask(f"{record}/value", "POST").json
    assert reported["text"] == '{\n  "iban": "***",\n  "to": "anna"\n}'
    place: dict[str, Any] = {"worker": "charge", "topic": "orders", "partition": 1, "offset": 0}
    command.wait_for_event(LogEvent.ADMIN_VALUE_SHOWN, **place, client="127.0.0.1")
    assert ask(f"{record[:-1]}7/value", "POST").status == 404
    ended = command.stop()
    assert ended.code == 0
    assert len(ended.lines_of(LogEvent.ADMIN_VALUE_SHOWN)) == 1


def limits(ask: Asking) -> list[int | None]:
    found = [each["snapshot"]["limit"] for each in workers_of(ask, "/api/frame", count=2)]
    return [None if each is None else each["limit"] for each in found]


def halted(ask: Asking) -> list[bool]:
    return [each["snapshot"]["halted"] for each in workers_of(ask, "/api/frame", count=2)]


def workers_of(ask: Asking, path: str, count: int = 1) -> list[dict[str, Any]]:
    """Return what is told of workers once all of them tell it.

    Who is silent for a second is not waited for by who is asked.
    """
    until = monotonic() + DEADLINE_S
    while True:
        answer = ask(path).json
        reported: list[dict[str, Any]] = answer["workers"]
        if (
            not answer.get("missing")
            and len(reported) == count
            and all(each["snapshot"] is not None for each in reported)
        ):
            return reported
        assert monotonic() < until, reported
