"""The screenshots of the live window: a shop in trouble, seen by Chromium.

``python -m docs.screenshots`` writes docs/images/live-window-*.png. It takes a minute, and needs
Debian's chromium.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, ViewportSize, sync_playwright

from window_consumer import App, Fatal, Record
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.embedded.capacity import NewRecord
from window_consumer.model.errors import RunError

IMAGES = Path(__file__).parent / "images"
PORT = 18090
SECONDS = 75
"""How long the shop has been running when the pictures are taken."""

VALUE = b'{"order": 4711, "amount": 42.5, "pay": {"iban": "DE02120300000000202051"}}'
HEADERS = [("wc-tags", b"web,express"), ("tenant", b"eu"), ("x-auth-token", b"a secret")]

SIZE = ViewportSize(width=1280, height=860)
_SHARES = (8, 2, 1, 1, 1, 2)
"""Of each partition's records: the first one is hot."""
_TROUBLED = 1

_WITHOUT_OUR_PATHS = """([ours, pythons]) => {
  const stack = document.querySelector("#details pre");
  stack.textContent = stack.textContent.replaceAll(ours, "/srv/shop").replaceAll(pythons, "/usr");
}"""

app = App("shop", version="1.4.2")
numbers = count(1)
over = threading.Event()
next_trouble = [time.monotonic() + SECONDS - 22]
"""When the bank does not answer: twice, some time before the pictures are taken."""


@app.handler(
    "orders",
    group="shop-charge",
    ordering="key",
    concurrency=24,
    window={"cells": 24, "cell_records": 10},
    retry={"attempts": 3, "backoff": "2s..4s", "on_failure": "overtake", "levels": ["10s"]},
    stall={"after": "5m", "action": "report"},
    stop_timeout="0s",
)
def charge(order: Record) -> None:
    """Charge an order; some cards are refused, and now and then the bank does not answer."""
    number = next(numbers)
    if order.partition == _TROUBLED and time.monotonic() > next_trouble[0]:
        next_trouble[0] += 12
        ask_the_bank()
    if number % 801 == 0:
        raise Fatal(f"order {order.offset} has no currency")
    if number % 61 == 0:
        raise ValueError(f"card refused for order {order.offset}: insufficient funds")
    if number % 397 == 0:
        raise TimeoutError("no answer from inventory:8080 within 2 s")
    time.sleep(random.uniform(0.02, 0.08))  # noqa: S311 - a made-up handler


def ask_the_bank() -> None:
    """Wait for an answer that never comes."""
    over.wait()


def order_all_the_time(broker: EmbeddedBroker) -> None:
    """Write orders until the end."""
    rng = random.Random(7)  # noqa: S311 - made-up orders
    while not over.wait(0.1):
        partitions = rng.choices(range(len(_SHARES)), _SHARES, k=22)
        keys = [f"customer-{rng.randrange(3000)}".encode() for _ in partitions]
        broker.fill(
            "orders",
            [
                NewRecord(VALUE, key, HEADERS, partition)
                for key, partition in zip(keys, partitions, strict=True)
            ],
        )


@contextmanager
def shop() -> Iterator[None]:
    """Run the shop with its admin address."""
    with EmbeddedBroker() as broker, TemporaryDirectory() as directory:
        for topic in ("orders", "shop-charge.orders.retry.10s", "shop-charge.orders.dlq"):
            broker.create_topic(topic, len(_SHARES))
        settings = broker.client_settings()
        bootstrap = settings.pop("bootstrap.servers")
        config = {
            "kafka": {"bootstrap.servers": bootstrap, "consumer": settings},
            "workers": {"charge": {}},
            "admin": {"listen": f"127.0.0.1:{PORT}", "values": True},
            "mask": [{"fields": ["iban", "x-auth-*"]}],
        }
        file = Path(directory, "workers.yaml")
        file.write_text(json.dumps(config), "utf-8")
        # Hanging calls outlive the stop, as intended.
        with suppress(RunError), app.start(file):
            threading.Thread(target=order_all_the_time, args=(broker,), daemon=True).start()
            try:
                yield
            finally:
                over.set()


def look(page: Page) -> None:
    """Open the page and wait until it is drawn."""
    page.goto(f"http://127.0.0.1:{PORT}/")
    page.locator(".troubles button:enabled").first.wait_for()
    page.wait_for_timeout(1500)


def main() -> None:
    """Take all pictures."""
    logging.getLogger("window_consumer").setLevel(logging.CRITICAL)
    program = shutil.which("chromium")
    with shop(), sync_playwright() as playwright:
        time.sleep(SECONDS)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            look(page)
            page.screenshot(path=IMAGES / f"live-window-{scheme}.png")
            if scheme == "light":
                page.locator(".troubles button", has_text="attempt 1, has been").first.click()
                page.locator("#details table").wait_for()
                if not page.locator("#details tr.more").count():
                    page.locator("#details button[aria-expanded]").first.click()
                page.get_by_role("button", name="Show the value").first.click()
                page.wait_for_timeout(1200)
                page.evaluate(_WITHOUT_OUR_PATHS, [str(IMAGES.parents[1]), sys.base_prefix])
                page.screenshot(path=IMAGES / "live-window-cell.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
