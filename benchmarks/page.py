"""What the live window costs a worker with full windows, and whether Chromium keeps up."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from playwright.sync_api import Page, sync_playwright

from benchmarks.results import Run
from window_consumer import App, Record
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.embedded.capacity import NewRecord
from window_consumer.model.errors import RunError

PARTITIONS: Final = 64
CELLS: Final = 64
CELL_RECORDS: Final = 5
LOOKED_AT_S: Final = 60.0
_TOPIC: Final = "orders"
_PORT: Final = 18091
_FULL_S: Final = 60.0
_PARTS: Final = 3
"""The minute is divided into this many parts, each next to as long without a page."""


def run() -> Run:
    """Watch a worker with Chromium for a minute, and leave it alone for as long.

    The worker is paused, so that all its windows are full and it does nothing else.
    """
    app = App("bench")
    window = {"cells": CELLS, "cell_records": CELL_RECORDS}
    app.handler(_TOPIC, group="bench", name="nothing", window=window)(_nothing)
    with EmbeddedBroker() as broker, TemporaryDirectory() as directory:
        for topic in (_TOPIC, f"bench.{_TOPIC}.dlq"):
            broker.create_topic(topic, PARTITIONS)
        settings = broker.client_settings()
        config = {
            "kafka": {"bootstrap.servers": settings.pop("bootstrap.servers"), "consumer": settings},
            "workers": {"nothing": {}},
            "admin": {"listen": f"127.0.0.1:{_PORT}"},
        }
        file = Path(directory, "workers.yaml")
        file.write_text(json.dumps(config), "utf-8")
        with app.start(file):
            _asked("/api/workers/nothing/pause", "POST")
            count = range(PARTITIONS * CELLS * CELL_RECORDS)
            broker.fill(
                _TOPIC, [NewRecord(b"x" * 100, None, (), each % PARTITIONS) for each in count]
            )
            _wait_until_full()
            return _looked_at()


def _nothing(_: Record) -> None:
    """Do nothing: it is never called."""


def _looked_at() -> Run:
    shares, counts = [], {"frames": 0, "missed": 0, "drawn": 0}
    part_s = LOOKED_AT_S / _PARTS
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for _ in range(_PARTS):
            alone = _share(lambda: time.sleep(part_s))
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.goto(f"http://127.0.0.1:{_PORT}/")
            page.locator(".windows canvas").nth(PARTITIONS - 1).wait_for()
            shares.append(_share(lambda page=page: _wait(page, part_s)) - alone)
            seen = page.evaluate("window.wcCounts")
            counts = {name: counts[name] + seen[name] for name in counts}
            page.close()
        browser.close()
    updates_per_s = counts["frames"] / LOOKED_AT_S
    notes = {
        "page": sorted(shares)[_PARTS // 2],
        "missed": float(counts["missed"]),
        "updates_per_s": updates_per_s,
        "drawn": counts["drawn"] / counts["frames"],
    }
    return Run(updates_per_s, notes=notes)


def _wait(page: Page, seconds: float) -> None:
    page.wait_for_timeout(seconds * 1000)


def _share(wait: Any) -> float:
    """Return the share of one core that this process uses while it waits."""
    began, cpu_s = time.perf_counter(), time.process_time()
    wait()
    return (time.process_time() - cpu_s) / (time.perf_counter() - began)


def _wait_until_full() -> None:
    deadline = time.monotonic() + _FULL_S
    while time.monotonic() < deadline:
        (worker,) = json.loads(_asked("/api/frame"))["workers"]
        partitions = (worker["snapshot"] or {"partitions": ()})["partitions"]
        rows = [len(each["row"]) for each in partitions]
        if rows == [CELLS] * PARTITIONS:
            return
        time.sleep(0.2)
    raise RunError("the windows did not fill up")


def _asked(path: str, method: str = "GET") -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{_PORT}{path}", method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - http, to ourselves
        told: bytes = answer.read()
        return told
