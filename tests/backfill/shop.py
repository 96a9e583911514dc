"""An application whose handlers note their calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from attrs import frozen

from window_consumer import App, Record, Skip

app = App("shop", version="7")


@frozen
class Order:
    """A value that is typed."""

    item: str
    pieces: int


Seen = tuple[str, int, int, float]
"""Key, offset, attempt, when."""

seen: list[Seen] = []
overlaps: list[bytes | None] = []
_running: set[bytes | None] = set()
_lock = threading.Lock()
entered: list[str] = []


@app.lifespan
def resources() -> Iterator[str]:
    entered.append("entered")
    yield "state"
    entered.append("left")


def note(record: Record) -> None:
    seen.append(((record.key or b"").decode(), record.offset, record.attempt, perf_counter()))


@app.handler("orders", group="shop-plain")
def plain(record: Record) -> None:
    """Note, tell each overlap of a key, take a moment."""
    with _lock:
        if record.key in _running:
            overlaps.append(record.key)
        _running.add(record.key)
    note(record)
    time.sleep(0.0005)
    with _lock:
        _running.discard(record.key)


@app.handler("orders", group="shop-failing")
def failing(record: Record) -> None:
    """Fail if the value says so."""
    note(record)
    assert record.state == "state"
    if record.value == b"skip":
        raise Skip("not wanted")
    if record.value == b"bad":
        raise ValueError(f"unknown order {record.offset}")
    if record.value == b"twice" and record.attempt < 3:
        raise ConnectionError("later")


@app.handler("orders", group="shop-outage")
def outage(record: Record) -> None:
    """Fail as long as there is no file of the value's name."""
    if not Path((record.value or b"").decode()).exists():
        raise ConnectionError("no answer")
    note(record)


@app.handler("orders", group="shop-typed")
def typed(order: Order, record: Record) -> None:
    """Take a value as an object."""
    seen.append((f"{order.item} x {order.pieces}", record.offset, record.attempt, 0.0))


@app.handler("orders", group="shop-coroutine")
async def coroutine(record: Record) -> None:
    """Be awaited."""
    note(record)


@app.batch_handler("orders", group="shop-batches", max_records=100)
def batches(records: list[Record]) -> None:
    """Take several at once."""
    seen.append((f"{len(records)}", records[0].offset, records[0].attempt, perf_counter()))
