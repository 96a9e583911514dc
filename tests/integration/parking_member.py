"""The member's application with keys that fail for a moment; each call is one for its original.

A call that fails leaves its record in line: its key is parked.
"""

from __future__ import annotations

import time
import zlib

from tests.integration import member
from window_consumer import App, Record
from window_consumer.testing.events import Ended, Result, Started

app = App("parking")

FAILS = 0.1
"""So many of all records fail when they are called first."""


@app.handler(name="work")
def work(record: Record) -> None:
    place = (member.NAME, *record.origin, (record.key or b"").decode())
    member.note(Started(*place, time=time.monotonic(), attempt=record.attempt))
    time.sleep(member.WORK_S)
    fails = record.attempt == 1 and zlib.crc32(record.value or b"") % 1000 < FAILS * 1000
    result: Result = "failed" if fails else "done"
    member.note(Ended(*place, time=time.monotonic(), result=result, attempt=record.attempt))
    if fails:
        raise ValueError(record.attempt)
