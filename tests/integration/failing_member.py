"""The member's application with calls that fail: which ones follows from value and attempt."""

from __future__ import annotations

import time
import zlib

from tests.integration import member
from window_consumer import App, Record

app = App("failing")

FAILS = 0.4
"""So much of all calls, and so many of those in each level."""


@app.handler(name="work")
def work(record: Record) -> None:
    with member.noted(record):
        time.sleep(member.WORK_S)
        if zlib.crc32(f"{record.text()}/{record.attempt}".encode()) % 1000 < FAILS * 1000:
            raise ValueError(record.attempt)
