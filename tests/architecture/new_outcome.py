"""Adds an outcome, runs a worker whose records end in it, and prints where it appears.

``test_outcomes`` runs this in a process of its own: the table is read when modules are imported, so
the row comes before them.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType
from typing import Any

from attrs import asdict

# The package's own __init__ imports modules that read the table; an empty package prevents that.
_HELD_OFF = ModuleType("window_consumer")
_HELD_OFF.__path__ = [str(Path(__file__).parents[2] / "window_consumer")]
sys.modules["window_consumer"] = _HELD_OFF

from window_consumer.model import outcome  # noqa: E402 - as above
from window_consumer.model.outcome import Outcome  # noqa: E402 - as above

SHELVED = outcome.add(
    Outcome(
        number=200,
        name="shelved",
        words="shelved",
        counter="shelved",
        metric="records.shelved",
        help="Records that lie on a shelf.",
        step="shelved",
        tier="shelved",
        calls_handler=False,
        is_beside_done=True,
    )
)

del sys.modules["window_consumer"]

import yaml  # noqa: E402 - the row comes first
from rich.console import Console  # noqa: E402 - as above

from window_consumer import App, Record, Skip  # noqa: E402 - as above
from window_consumer.admin.answers import outcomes_module  # noqa: E402 - as above
from window_consumer.admin.board import CellPlace, WorkersBoard  # noqa: E402 - as above
from window_consumer.admin.commands.live_view import view  # noqa: E402 - as above
from window_consumer.admin.commands.screen import Memory, TopScene  # noqa: E402 - as above
from window_consumer.audit.count import decode  # noqa: E402 - as above
from window_consumer.audit.states import TERMS  # noqa: E402 - as above
from window_consumer.config.sections.mask import MaskRules  # noqa: E402 - as above
from window_consumer.kafka.embedded import EmbeddedBroker  # noqa: E402 - as above
from window_consumer.metrics.health import Health  # noqa: E402 - as above
from window_consumer.model.record import TopicPartition  # noqa: E402 - as above
from window_consumer.model.redaction import Mask  # noqa: E402 - as above
from window_consumer.runtime.figures.measures import MeasuredWorkers  # noqa: E402 - as above
from window_consumer.testing import TestApp  # noqa: E402 - as above
from window_consumer.trace.event import TraceEvent  # noqa: E402 - as above
from window_consumer.trace.event_batch import decoded  # noqa: E402 - as above
from window_consumer.trace.journey import Journey  # noqa: E402 - as above

WAIT_S = 30.0


class Shelved(Skip):
    """The record lies on a shelf."""

    outcome = SHELVED


def an_app(release: threading.Event) -> App:
    """Return an application that shelves all but one record, whose call hangs."""
    app = App("shop")

    @app.handler("orders", group="shop", concurrency=2)
    def charge(order: Record) -> None:
        if order.text() == "hang":
            release.wait(WAIT_S)
        else:
            raise Shelved("later")

    return app


class LastLines(logging.Handler):
    """Keeps the fields of log records."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a worker's last line."""
        if getattr(record, "event", "") == "worker.stopped":
            self.stopped.append(vars(record).get("shelved", vars(record)))


def while_it_runs(health: Health, board: WorkersBoard) -> dict[str, Any]:
    """Return where the outcome is found as long as the worker runs."""
    (worker,) = board.windows(stacks=False, history=False)["workers"]
    (framed,) = board.frame(0)["workers"]
    cell: Any = board.cell(CellPlace("charge", TopicPartition("orders", 0), 0))
    states = {each["state"] for each in cell["records"]} - {"running", "waiting"}
    lines = health.metrics().text.splitlines()
    return {
        "metrics": [
            line.partition("{")[0] + " " + line.split()[-1].removesuffix(".0")
            for line in lines
            if "shelved" in line and not line.startswith("#")
        ],
        "snapshot": worker["snapshot"]["counters"]["shelved"],
        "frame": framed["snapshot"]["counters"]["shelved"],
        "page": '"shelved"' in outcomes_module(),
        "cell": " ".join(states),
    }


def in_top(running: Any) -> bool:
    """Return whether ``top`` shows it."""
    memory = Memory()
    seen = running.workers[0].snapshot(5.0).windows
    console = Console(file=io.StringIO(), width=120)
    console.print(view(TopScene("", 1.0, (memory.worker("charge", seen, 1.0),), {}), 120))
    assert isinstance(console.file, io.StringIO)
    return "2 shelved" in console.file.getvalue()


def traced(broker: EmbeddedBroker) -> Iterator[TraceEvent]:
    """Yield the trace's events of shelved records."""
    for message in broker.read_all("wc.trace"):
        yield from (each for each in decoded(message.value() or b"") if each.step == "shelved")


def audited(broker: EmbeddedBroker) -> int:
    """Return how many records the audit counts as shelved."""
    counts = [each for m in broker.read_all("wc.audit") for each in decode(m.value() or b"")]
    return sum(each.count for each in counts if each.tier == "shelved")


def main(directory: Path) -> None:
    """Run the worker, and print the findings as a line of JSON."""
    release, measured, lines = threading.Event(), MeasuredWorkers(), LastLines()
    board = WorkersBoard("", Mask(()), MaskRules(()))
    logger = logging.getLogger("window_consumer")
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    with EmbeddedBroker() as broker:
        for topic in ("orders", "wc.trace", "wc.audit"):
            broker.create_topic(topic, 1)
        for text in (b"hang", b"shelve", b"shelve"):  # the first one keeps the cell open
            broker.produce("orders", text, partition=0)
        kafka = broker.client_settings()
        settings = {
            "kafka": {"bootstrap.servers": kafka.pop("bootstrap.servers"), "consumer": kafka},
            "workers": {"charge": {"commit_interval": "100ms"}},
            "trace": {"sample": "100%", "topic": "wc.trace", "flush": "100ms"},
            "audit": {"enabled": True, "directory": str(directory), "topic": "wc.audit"},
        }
        file = directory / "workers.yaml"
        file.write_text(yaml.safe_dump(settings))
        with an_app(release).start(file, start_timeout=WAIT_S) as running:
            measured.attach(running)
            board.attach(running)
            until = monotonic() + WAIT_S
            while asdict(running.counters["charge"])["shelved"] < 2 and monotonic() < until:
                sleep(0.05)
            found = while_it_runs(Health(measured), board) | {"top": in_top(running)}
            release.set()
        events = list(traced(broker))
        journey = Journey.of(events[:1])
        found |= {
            "stopped": lines.stopped[-1],
            "traced": [each.step for each in events],
            "journey": None if journey is None else journey.passages[0].ways[0].end,
            "audited": audited(broker),
            "report": TERMS["shelved"],
        }
    with TestApp(an_app(release), {"workers": {"charge": {}}}) as kit:
        found["test kit"] = repr(kit.send("orders", "x").outcome)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
