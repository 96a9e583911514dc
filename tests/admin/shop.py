"""A worker in this process of which everything can be seen: calls that run, hang, fail and wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import yaml
from attrs import frozen

from tests.commands import DEADLINE_S, kafka_of
from window_consumer import App, Record
from window_consumer.admin.board import WorkersBoard
from window_consumer.config.sections.mask import MaskRule, MaskRules
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.redaction import Mask
from window_consumer.runtime.figures.measures import MeasuredWorkers


@frozen
class SeenShop:
    """Requests about the worker ``charge``."""

    board: WorkersBoard
    measured: MeasuredWorkers


@contextmanager
def seen_shop(directory: Path, broker: EmbeddedBroker) -> Iterator[SeenShop]:
    """A shop with a call that hangs in orders[0] and a failed record that blocks in orders[1]."""
    app, release = App("shop"), threading.Event()

    @app.handler("orders", group="shop", ordering="key", concurrency=4)
    def charge(order: Record) -> None:
        if order.text() == "hang":
            release.wait(DEADLINE_S)
        if order.text() == "broken":
            raise ValueError("no account hunter2")

    worker = {
        "stop_timeout": "0.1s",
        "stall": {"after": "1h", "action": "report"},
        "retry": {"attempts": 3, "backoff": "10m..10m", "on_failure": "block"},
    }
    file = directory / "workers.yaml"
    file.write_text(yaml.safe_dump({"kafka": kafka_of(broker), "workers": {"charge": worker}}))
    broker.create_topic("orders", 2)
    for partition, text in ((0, b"hang"), (1, b"fine"), (1, b"broken"), (1, b"fine")):
        headers = [("tenant", b"eu")]
        broker.produce("orders", text, key=b"anna", partition=partition, headers=headers)
    broker.produce("orders", b"fine", key=b"hugo", partition=1)
    rules = MaskRules((MaskRule(topics=("orders",), fields=("iban",)),))
    measured = MeasuredWorkers()
    seen = SeenShop(WorkersBoard("", Mask(["hunter2"]), rules), measured)
    with app.start(file, start_timeout=DEADLINE_S) as running:
        try:
            seen.board.attach(running)
            measured.attach(running)
            _wait(seen.board)
            yield seen
        finally:
            release.set()


def _wait(board: WorkersBoard) -> None:
    """Wait until everything is to be seen, and there are samples."""
    until = monotonic() + DEADLINE_S
    while monotonic() < until:
        board.take_samples()
        (worker,) = board.windows(stacks=False, history=True)["workers"]
        windows = worker["snapshot"]
        if windows and worker["blocking"] and worker["history"] and windows["calls"]:
            lags = [each["lag"]["records"] for each in windows["partitions"]]
            if None not in lags and windows["counters"]["processed"] == 2:
                return
        sleep(0.05)
    raise AssertionError("the shop does not get there")
