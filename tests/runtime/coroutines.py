"""A pool of coroutines on a real loop, its queues in the test's hands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, Self

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, notes
from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import Record
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.pools.asyncio import AsyncPool
from window_consumer.runtime.pools.event_loop import EventLoop

DEADLINE_S = 30.0

AsyncHandler = Callable[[Record], Awaitable[object]]


class Coroutines:
    """Submits slices and collects them. Use as a context manager."""

    def __init__(self, handler: AsyncHandler, slots: int = 4, state: Any = None):
        faults = ErrorReports(lambda text: text.replace("swordfish", "***"))
        self.completions: SimpleQueue[Slice] = SimpleQueue()
        self.loop = EventLoop("wc-work-loop")
        self._partitions: dict[str, Partition] = {}
        caller = Caller(handler, faults.failure, faults.stalled)
        self.pool = AsyncPool("work", slots, caller, self.completions, state, self.loop)

    def __enter__(self) -> Self:
        self.pool.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.pool.stop(DEADLINE_S) == 0

    def submit(
        self, *offsets: int, ordering: str = "unordered", keys: Any = None, batch: bool = False
    ) -> Slice:
        if ordering not in self._partitions:
            self._partitions[ordering] = Driven(ordering=ordering).engine.partitions[ORDERS]
        partition = self._partitions[ordering]
        messages = notes(*offsets, keys=keys)
        slice_ = Slice(partition, messages, range(len(offsets)), 10 * len(offsets))
        slice_.is_batch = batch
        self.pool.submit(slice_)
        return slice_

    def back(self) -> Slice:
        """Wait for the next slice that comes back."""
        return self.completions.get(timeout=DEADLINE_S)

    def run(self, *offsets: int, **more: Any) -> Slice:
        slice_ = self.submit(*offsets, **more)
        assert self.back() is slice_
        return slice_

    def turn(self) -> None:
        """Wait until the loop has no more work."""

        async def nothing() -> None: ...

        for _ in range(3):
            self.loop.run(nothing())


def stalled(slice_: Slice, *, end: bool = False, abandon: bool = False) -> Stalled:
    offset = slice_.messages[-1].offset()
    return Stalled(slice_, ORDERS, offset, None, 1, 31.0, abandon=abandon, end=end)


def failed(slice_: Slice) -> dict[int, BaseException]:
    """Return the errors of a slice's records."""
    noted = slice_.deviate().failed
    return {message.offset(): failure.error for message, failure in noted}
