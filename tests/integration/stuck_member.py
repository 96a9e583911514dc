"""The member's application with records that get stuck: their values are in the file ``stuck``."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.integration import member
from window_consumer import App, Record

app = App("stuck")
_STUCK = Path(os.environ.get("JOURNAL", os.devnull)).with_name("stuck")


@app.handler(name="work")
def work(record: Record) -> None:
    while _STUCK.exists() and record.text() in _STUCK.read_text().split():
        time.sleep(0.02)
    member.work(record)
