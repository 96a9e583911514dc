"""The shop of the examples: each order has one invoice, although its worker is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from confluent_kafka import Consumer, TopicPartition

from tests.commands import DEADLINE_S, Command
from tests.docs.pages import ROOT

SHOP = ROOT / "examples" / "shop"
ORDERS = 30


@contextmanager
def shop_at(url: str) -> Iterator[Command]:
    """Start the shop with a database; nothing of it outlives the block."""
    ours = {key: value for key, value in os.environ.items() if key != "KAFKA_BOOTSTRAP"}
    process = subprocess.Popen(
        [sys.executable, str(SHOP / "run.py")],
        env={**ours, "DATABASE_URL": url, "PORT": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    shop = Command(process)
    try:
        yield shop
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(DEADLINE_S)


def printed(shop: Command, pattern: str) -> str:
    return str(re.findall(pattern, shop.said)[-1])


def order(form: str, item: str) -> None:
    body = urllib.parse.urlencode({"item": item}).encode()
    with urllib.request.urlopen(f"{form}orders", body, timeout=DEADLINE_S) as answer:  # noqa: S310 - http
        assert answer.status == 200  # of the page that it leads to


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 2 * DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return str(request.getfixturevalue("database"))


def test_each_order_has_one_invoice_and_one_event_although_the_worker_is_killed(url: str) -> None:
    with shop_at(url) as shop:
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
        eventually(lambda: count("SELECT count(*) FROM invoices") >= 3)
        os.kill(int(printed(shop, r"worker: process (\d+)")), signal.SIGKILL)
        invoiced_before = count("SELECT count(*) FROM invoices")
        placing.join()
        shop.wait_for("worker: process", times=2)
        eventually(lambda: count("SELECT count(*) FROM invoices") >= ORDERS)
        eventually(lambda: not count("SELECT count(*) FROM wc_outbox"))
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
        shop.signal(signal.SIGINT)
        ended = shop.wait()
    assert ended.code == 0, ended.said
    assert "0 unfinished" in ended.said
