"""An application whose first calls wait for a lock that the test holds, in any process."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from window_consumer import App, Record, header

CALLS, GATE = "FAIR_CALLS", "FAIR_GATE"
"""Environment variables: the file of calls, and the file that is locked."""


FIRST = "first"
"""The tenant whose calls wait until the gate is open."""


def call(record: Record, handler: str = "charge") -> None:
    """Record the call, perhaps after a wait."""
    tenant = (record.header("tenant") or b"").decode()
    if tenant == FIRST:
        with Path(os.environ[GATE]).open() as gate:
            fcntl.flock(gate, fcntl.LOCK_SH)
        return
    with Path(os.environ[CALLS]).open("a") as calls:
        calls.write(f"{handler}/{record.topic}/{tenant}\n")


def with_coroutines() -> App:
    """Return an application whose handler is a coroutine."""
    made = App("shop")

    @made.handler(name="charge")
    async def charge(record: Record) -> None:
        await asyncio.to_thread(call, record)

    return made


def with_routes() -> App:
    """Return an application with two handlers in one worker."""
    made = App("shop")

    @made.handler("orders", "urgent", group="g", when=header("tenant") == "big")
    def paid(record: Record) -> None:
        call(record, "paid")

    @made.handler("orders", "urgent", group="g")
    def refunded(record: Record) -> None:
        call(record, "refunded")

    return made


app = App("shop")


@app.handler()
def charge(record: Record) -> None:
    """The handler of threads and child processes."""
    call(record)
