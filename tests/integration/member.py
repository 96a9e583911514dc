"""An application whose handler writes down each call, for tests with several processes.

Each event is one unbuffered write, so that a killed process leaves all that it had done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from window_consumer import App, Record
from window_consumer.testing.events import Ended, Result, Started, to_line

app = App("member")
NAME = os.environ.get("MEMBER", "?")
_JOURNAL = os.environ.get("JOURNAL", os.devnull)
WORK_S = float(os.environ.get("WORK_S", "0.001"))
_FILE = os.open(_JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(event: Started | Ended) -> None:
    """Write an event down."""
    os.write(_FILE, f"{to_line(event)}\n".encode())


@contextmanager
def noted(record: Record) -> Iterator[None]:
    """Write a call's beginning down and, unless it fails for good, that its record is done."""
    key = None if record.key is None else record.key.decode()
    place = (NAME, record.topic, record.partition, record.offset, key)
    note(Started(*place, time=time.monotonic(), attempt=record.attempt))
    result: Result = "spent"
    try:
        yield
        result = "done"
    finally:
        note(Ended(*place, time=time.monotonic(), result=result, attempt=record.attempt))


@app.handler(name="work")
def work(record: Record) -> None:
    with noted(record):
        time.sleep(WORK_S)
