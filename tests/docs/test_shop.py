"""``make shop`` as a newcomer types it: each order has one invoice, although its worker is killed.

The checkout is a copy, so that no file of the real one changes; the environment is this one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from confluent_kafka import Consumer, TopicPartition

from tests.commands import DEADLINE_S, Command
from tests.docs.pages import ROOT
from tests.waiting import wait_until

ORDERS = 30


def checkout_in(directory: Path) -> Path:
    """Copy what ``make shop`` needs; return the root."""
    (directory / "examples").mkdir(parents=True)
    shutil.copytree(
        ROOT / "examples" / "shop",
        directory / "examples" / "shop",
        ignore=shutil.ignore_patterns("shop.db*", "__pycache__"),
    )
    shutil.copy(ROOT / "Makefile", directory)
    return directory


@contextmanager
def make_shop(checkout: Path, database: str | None, *, port: int = 0) -> Iterator[Command]:
    """Run ``make shop`` with a database, or its default; nothing of it outlives the block."""
    ours = {**os.environ, "PORT": str(port), "PYTHONDONTWRITEBYTECODE": "1"}
    ours = {key: ours[key] for key in ours.keys() - {"KAFKA_BOOTSTRAP", "DATABASE_URL"}}
    if database is not None:
        ours["DATABASE_URL"] = database
    installed = ("-o", f"{sys.prefix}/.installed-shop")
    process = subprocess.Popen(
        ["make", "shop", f"VENV={sys.prefix}", *installed],
        cwd=checkout,
        env=ours,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Command(process)
    finally:
        if process.poll() is None:
            ctrl_c(process.pid)
            process.wait(DEADLINE_S)


def ctrl_c(group: int) -> None:
    """Interrupt a process group, as a terminal does."""
    os.killpg(group, signal.SIGINT)


def printed(shop: Command, pattern: str) -> str:
    return str(re.findall(pattern, shop.said)[-1])


def order(form: str, item: str) -> None:
    body = urllib.parse.urlencode({"item": item}).encode()
    with urllib.request.urlopen(f"{form}orders", body, timeout=DEADLINE_S) as answer:  # noqa: S310 - http
        assert answer.status == 200  # of the page that it leads to


def events_in(bootstrap: str) -> list[tuple[object, object]]:
    """Return id and key of each event."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition("order-events", number, 0) for number in range(4)])
    deadline = time.monotonic() + DEADLINE_S
    found: list[tuple[object, object]] = []
    ends = 0
    while ends < 4:
        assert time.monotonic() < deadline, f"read {len(found)} events, {ends} of 4 ends"
        for message in consumer.consume(100, 1.0):
            if message.error() is not None:
                ends += 1
                continue
            headers = dict(message.headers() or ())
            found.append((headers["wc-id"], message.key()))
    consumer.close()
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return checkout_in(tmp_path / "checkout")


Databases = tuple[str | None, str]
"""What DATABASE_URL says, if anything, and where the test finds that database."""


@pytest.fixture(params=["default", "postgresql"])
def databases(request: pytest.FixtureRequest, checkout: Path) -> Databases:
    if request.param == "default":
        return None, f"sqlite:///{checkout / 'examples' / 'shop' / 'shop.db'}"
    url = str(request.getfixturevalue("database"))
    return url, url


def test_each_order_has_one_invoice_and_one_event_although_the_worker_is_killed(
    checkout: Path, databases: Databases
) -> None:
    named, url = databases
    with make_shop(checkout, named) as shop:
        shop.wait_for("form: ")
        form = printed(shop, r"form: (\S+)")
        engine = sa.create_engine(url)

        def count(sql: str) -> int:
            with engine.connect() as connection:
                return int(connection.exec_driver_sql(sql).scalar() or 0)

        def place() -> None:
            for number in range(ORDERS):
                order(form, f"book {number}")

        placing = threading.Thread(target=place)
        placing.start()
        wait_until(lambda: count("SELECT count(*) FROM invoices") >= 3)
        os.kill(int(printed(shop, r"worker: process (\d+)")), signal.SIGKILL)
        invoiced_before = count("SELECT count(*) FROM invoices")
        placing.join()
        shop.wait_for("worker: process", times=2)
        wait_until(lambda: count("SELECT count(*) FROM invoices") >= ORDERS)
        wait_until(lambda: not count("SELECT count(*) FROM wc_outbox"))
        events = events_in(printed(shop, r"broker: (\S+)"))
        with urllib.request.urlopen(form, timeout=DEADLINE_S) as page:  # noqa: S310 - http
            text = page.read().decode()
        assert invoiced_before < ORDERS
        assert count("SELECT count(*) FROM orders") == ORDERS
        assert count("SELECT count(*) FROM invoices") == ORDERS
        assert count("SELECT count(DISTINCT order_id) FROM invoices") == ORDERS
        assert len(set(events)) == len({key for _, key in events}) == ORDERS
        assert text.count("<td>1<") == text.count("<td>book") == ORDERS
        engine.dispose()
        ctrl_c(shop.process.pid)
        ended = shop.wait()
    assert "0 unfinished" in ended.said


def test_a_relative_database_is_one_file_for_the_form_and_the_worker(checkout: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{checkout / 'mine.db'}")
    with make_shop(checkout, "sqlite:///mine.db") as shop:
        shop.wait_for("form: ")
        order(printed(shop, r"form: (\S+)"), "book")

        def invoices() -> int:
            with engine.connect() as connection:
                return int(connection.scalar(sa.text("SELECT count(*) FROM invoices")) or 0)

        wait_until(invoices)
        assert invoices() == 1
        engine.dispose()


def test_a_worker_that_would_fail_again_ends_the_shop_with_its_message(checkout: Path) -> None:
    file = checkout / "examples" / "shop" / "workers.yaml"
    file.write_text(file.read_text("utf-8").replace("concurrency", "concurency"), "utf-8")
    with make_shop(checkout, None) as shop:
        ended = shop.wait()
    assert ended.code != 0
    assert "concurency" in ended.err
    assert ended.out.count("worker: process") == 1


def test_a_port_that_is_taken_ends_the_shop_before_anything_starts(checkout: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with make_shop(checkout, None, port=port) as shop:
            ended = shop.wait()
    assert ended.code != 0
    assert f"port {port}" in ended.err
    assert "worker" not in ended.out
