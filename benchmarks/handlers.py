"""What the handlers of the workloads do."""

from __future__ import annotations

import asyncio
import threading
from time import sleep

from benchmarks.calls import AsyncHandler, Handler
from benchmarks.workloads import SLOW_MARK, Workload
from window_consumer import Record


def nothing(_record: object) -> None:
    """Handle a record without doing anything; the loops written by hand call the same function."""


def waiting(workload: Workload) -> Handler:
    """Return a handler that sleeps, as if it waited for a database."""
    wait_s, slow_wait_s = workload.wait_s, workload.slow_wait_s
    if not workload.topic.slow_one_in:
        return lambda _record: sleep(wait_s)

    def handle(record: Record) -> None:
        slow = (record.value or b"").startswith(SLOW_MARK)
        sleep(slow_wait_s if slow else wait_s)

    return handle


async def coroutine_of_nothing(_record: object) -> None:
    """Handle a record without doing anything, as a coroutine."""


def waiting_coroutine(workload: Workload) -> AsyncHandler:
    """Return a coroutine function that sleeps, as if it waited for a database."""
    wait_s = workload.wait_s

    async def handle(_record: object) -> None:
        await asyncio.sleep(wait_s)

    return handle


def hanging(hangs: threading.Event, released: threading.Event) -> Handler:
    """Return a no-op handler that hangs at the first record of partition 0.

    It sets ``hangs`` there, and continues when ``released`` is set.
    """

    def handle(record: Record) -> None:
        if record.offset == 0 and record.partition == 0:
            hangs.set()
            released.wait()

    return handle
