"""The member's application with records that end the process: their values are in ``deadly``."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.integration import member
from window_consumer import App, Record

app = App("crashing")
_DEADLY = Path(os.environ.get("JOURNAL", os.devnull)).with_name("deadly").read_text().split()


@app.handler(name="work")
def work(record: Record) -> None:
    if record.text() in _DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    member.work(record)
