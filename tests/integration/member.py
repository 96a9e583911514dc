"""An application whose handler writes down each call, for tests with several processes.

Each event is one unbuffered write, so that a killed process leaves all that it had done.
"""

from __future__ import annotations

import os
import time

from window_consumer import App, Record
from window_consumer.testing.events import Ended, Started, to_line

app = App("member")
_MEMBER = os.environ.get("MEMBER", "?")
_JOURNAL = os.environ.get("JOURNAL", os.devnull)
_WORK_S = float(os.environ.get("WORK_S", "0.001"))
_FILE = os.open(_JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _note(event: Started | Ended) -> None:
    os.write(_FILE, f"{to_line(event)}\n".encode())


@app.handler(name="work")
def work(record: Record) -> None:
    key = None if record.key is None else record.key.decode()
    place = (_MEMBER, record.topic, record.partition, record.offset, key)
    _note(Started(*place, time=time.monotonic(), attempt=record.attempt))
    time.sleep(_WORK_S)
    _note(Ended(*place, time=time.monotonic(), result="done", attempt=record.attempt))
