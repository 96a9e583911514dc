"""Pools of real children, and slices for them."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import random
import signal
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, Note
from tests.runtime import children
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.figures.stack_dump import ChildState
from window_consumer.runtime.pools.processes.child_slot import ProcessPoolRules
from window_consumer.runtime.pools.processes.pool import ProcessPool

DEADLINE_S = 60.0
AT_WORK = {ChildState.IDLE, ChildState.RUNNING, ChildState.RESTING}
LOGGER = logging.getLogger("tests.processes")
MakePool = Callable[..., "Pool"]


class Pool:
    """A pool and its completions queue."""

    def __init__(
        self, slots: int, handler: str = "obey", trouble: str = "", used: int = 0, **rules: Any
    ):
        faults = ErrorReports()
        self.completions: SimpleQueue[Any] = SimpleQueue()
        self.pool = ProcessPool(
            "work",
            slots,
            Caller(children.nothing, faults.failure, faults.stalled),
            self.completions,
            None,
            equip=pickle.dumps(children.Equip(handler, trouble)),
            logger=LOGGER,
            rules=ProcessPoolRules(**rules),
        )
        if used:
            self.pool.use(used)
        self.partition = Driven(ordering="key").engine.partitions[ORDERS]

    def slice_of(self, *values: str, keys: Any = None, first: int = 0) -> Slice:
        """Submit a slice with these values; without keys nothing is held behind anything."""
        offsets = range(first, first + len(values))
        keys = keys or [None] * len(values)
        messages: list[Any] = [
            Note(offset, key, value=value.encode())
            for offset, key, value in zip(offsets, keys, values, strict=True)
        ]
        slice_ = Slice(self.partition, messages, offsets, 10)
        self.pool.submit(slice_)
        return slice_

    def back(self) -> Slice:
        slice_ = self.completions.get(timeout=DEADLINE_S)
        assert isinstance(slice_, Slice), slice_
        return slice_

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self.pool.children() if child.state in AT_WORK]

    def kill_one(self, seeded: random.Random) -> bool:
        pids = self.pids
        with contextlib.suppress(ProcessLookupError):
            if pids:
                os.kill(seeded.choice(pids), signal.SIGKILL)
        return bool(pids)


def offsets(messages: list[Any]) -> list[int]:
    return [message.offset() for message in messages]
