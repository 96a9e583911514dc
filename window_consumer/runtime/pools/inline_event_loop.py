"""An event loop that runs on the thread of whoever asks, and only while it is asked.

For tests and debuggers: the coroutines of an application on one thread, one call after the other.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from types import CodeType, TracebackType
from typing import Any, Self, TypeVar

from window_consumer.model.errors import UsageError
from window_consumer.model.record import Record
from window_consumer.runtime.pools.event_loop import make_loop

__handler_layer__ = True  # its frames are no part of a failure, see error_report.py

T = TypeVar("T")


class InlineEventLoop:
    """Runs awaitables to their end. Use it as a context manager. Owner: one thread.

    What they leave behind goes on whenever another one is run, and is cancelled at the end.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=make_loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel what is left and close the loop."""
        self._runner.close()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Return what it returns, raise what it raises; it sees the caller's context.

        Raises UsageError where the caller is a coroutine itself: one thread cannot wait for both.
        """
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - get_running_loop raises instead
            if inspect.iscoroutine(awaitable):
                awaitable.close()
            raise UsageError(
                "coroutines are run here from a plain function, and this thread runs an event loop"
                " already: call it from a test that is no async def, or on a thread of its own"
            )
        try:
            return self._runner.run(_awaited(awaitable), context=copy_context())
        except BaseException as error:
            error.__traceback__ = _below(_awaited.__code__, error.__traceback__)
            raise

    def running(self, handler: Callable[[Record], Any]) -> Callable[[Record], object]:
        """Return a plain function that runs what the handler makes for a record to its end."""
        return lambda record: self.run(handler(record))


def _below(code: CodeType, trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of the loop, which say nothing of what was raised."""
    below = trace
    while below is not None and below.tb_frame.f_code is not code:
        below = below.tb_next
    return trace if below is None else below.tb_next


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable
