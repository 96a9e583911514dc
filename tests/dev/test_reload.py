"""``dev`` reloads: new code after each change, nothing lost, and no end because of a mistake."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.admin.admin import Asking
from tests.commands import Commands, produce
from tests.dev.conftest import Dev, StartDev, shop
from tests.waiting import wait_until
from window_consumer.dev.process import DevProcess
from window_consumer.kafka.embedded import EmbeddedBroker

HANGS = """
import threading
from window_consumer import App

app = App("shop")


@app.handler("orders", group="shop")
def charge(order):
    print("hangs", flush=True)
    threading.Event().wait()
"""


def test_a_change_runs_the_new_code_and_loses_nothing_that_is_sent_meanwhile(
    start_dev: StartDev, embedded: EmbeddedBroker
) -> None:
    dev = start_dev()
    assert dev.port
    embedded.produce("orders", b"a", partition=0)
    dev.command.wait_for("one a 0")
    dev.change(shop("two"))
    embedded.produce("orders", b"b", partition=0)
    dev.command.wait_for("dev: http://", times=2)
    embedded.produce("orders", b"c", partition=0)
    dev.command.wait_for("two c 2")
    ended = dev.command.stop()
    assert ended.code == 0
    assert re.findall(r"\w+ a 0", ended.out) == ["one a 0"], "its offset was committed"
    assert re.findall(r"\w+ b 1", ended.out) in (["one b 1"], ["two b 1"])


def test_after_a_mistake_it_waits_for_the_next_change(start_dev: StartDev) -> None:
    dev = start_dev()
    dev.wait_for_status(200)
    dev.change("def charge(:\n")
    dev.wait_for_status(503)
    assert Asking(dev.port)("/").status == 503
    _, answer = dev.ask("/api/frame")
    assert "SyntaxError" in answer["output"]
    elsewhere = dev.ask("/api/frame", host="evil.example")
    assert elsewhere == (503, {**answer, "output": ""})
    dev.change(shop("two"))
    dev.wait_for_status(200)
    (dev.commands.directory / "workers.yaml").write_text('{"workers": {"charge": {"slots": 0}}}')
    dev.wait_for_status(503)
    (dev.commands.directory / "workers.yaml").write_text('{"workers": {"charge": {}}}')
    dev.wait_for_status(200)
    dev.command.signal(signal.SIGINT)
    assert dev.command.wait().code == 0


def test_other_files_that_applications_read_make_it_reload_too(
    start_dev: StartDev, tmp_path_factory: pytest.TempPathFactory
) -> None:
    prices = tmp_path_factory.mktemp("elsewhere") / "prices.csv"
    prices.write_text("1")
    dev = start_dev("--watch", str(prices))
    dev.command.wait_for("dev: http://")
    (dev.commands.directory / "written-by-a-handler.csv").write_text("1")
    (dev.commands.directory / "mail.html").write_text("1")
    dev.command.wait_for("dev: http://", times=2)
    prices.write_text("2")
    dev.command.wait_for("dev: http://", times=3)
    reloads = re.findall(r"^dev: reloading: (.*)$", dev.command.said, re.MULTILINE)
    assert reloads == ["mail.html", str(prices)]


def test_doctor_asks_the_broker_of_dev_and_not_that_of_the_file(commands: Commands) -> None:
    commands.application(shop("one"))
    commands.configure({"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "workers": {"charge": {}}})
    dev = Dev(commands, commands.start("dev", "shop:app", "--no-open"))
    url = f"http://127.0.0.1:{dev.port}"
    options = ("--for", "2s", "--start-timeout", "5s", "--json")
    asked = commands.run("doctor", "shop:app", "--url", url, *options)
    assert (asked.code, asked.json["notes"]) == (0, []), asked.said
    assert dev.command.stop().code == 0


def test_when_it_is_killed_the_application_ends_too(start_dev: StartDev) -> None:
    dev = start_dev()
    dev.wait_for_status(200)
    dev.command.process.kill()
    dev.command.process.wait(60)
    wait_until(lambda: dev.ask("/api/frame?since=0") is None)


def test_a_call_that_never_returns_delays_a_reload_by_seconds_only(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"a")
    commands.application(HANGS)
    commands.configure({"workers": {"charge": {"stop_timeout": "60s"}}})
    given = [f"kafka.bootstrap.servers={embedded.bootstrap}", "admin.listen=127.0.0.1:0"]
    config = str(commands.directory / "workers.yaml")
    settings = [word for each in given for word in ("--set", each)]
    environment = {**os.environ, "PYTHONPATH": str(commands.directory)}
    process = DevProcess(["run", "shop:app", "--config", config, *settings], environment)
    process.start()
    wait_until(process.page)
    process.stop(drain_s=0.5)
    assert (process.is_running, process.exit_code()) == (False, None)


def test_its_own_broker_has_the_topics_that_workers_read(commands: Commands) -> None:
    commands.application(shop("one"))
    commands.configure({"workers": {"charge": {}}})
    command = commands.start("dev", "shop:app", "--no-open")
    command.wait_for("dev: http://")  # the topic is there
    broker = re.search(r"127\.0\.0\.1:\d+", command.said)
    assert broker is not None
    produce(broker[0], "orders", b"a", b"b", b"broken")
    for record in ("a", "b", "broken"):
        command.wait_for(f"one {record}")
    assert command.stop().code == 0


def test_the_page_opens_once_where_there_is_a_display(start_dev: StartDev, tmp_path: Path) -> None:
    opened, browser = tmp_path / "opened", tmp_path / "a-browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o700)
    env = {"DISPLAY": ":0", "CI": "", "BROWSER": f"{browser} %s"}
    dev = start_dev(env=env)
    wait_until(opened.exists)
    dev.change(shop("two"))
    dev.command.wait_for("dev: http://", times=2)
    dev.command.stop()
    assert opened.read_text().splitlines() == [f"http://127.0.0.1:{dev.port}/"]


def test_where_the_extra_is_missing_its_name_is_said() -> None:
    script = """
import sys
sys.modules["watchfiles"] = None
from window_consumer.cli.main import main
main(["dev", "shop:app"])
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, "'window-consumer[reload]'" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    "options",
    [("--cluster",), ("--watch", "missing"), ("--port", "BUSY"), ("--config", "../missing/a.yaml")],
)
def test_what_cannot_work_is_refused_at_once(
    start_dev: StartDev, embedded: EmbeddedBroker, options: tuple[str, ...]
) -> None:
    busy = embedded.bootstrap.rpartition(":")[2]
    dev = start_dev(*(each.replace("BUSY", busy) for each in options))
    assert dev.command.wait().code == 2
