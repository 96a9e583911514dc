"""An event loop that runs on the caller's thread, and only during a call.

For tests and debuggers: it runs an application's coroutines on one thread, one after the other.
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

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

T = TypeVar("T")


class InlineEventLoop:
    """Runs awaitables to completion. Use it as a context manager. Owner: one thread.

    Their leftover tasks continue during later runs, and are cancelled at the end.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=make_loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel the leftover tasks and close the loop."""
        self._runner.close()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Return or raise what the awaitable does; it sees the caller's context.

        Raises UsageError if the caller is itself a coroutine: one thread cannot wait for both.
        """
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - get_running_loop raises instead
            if inspect.iscoroutine(awaitable):
                awaitable.close()
            raise UsageError(
                "coroutines are run here from a plain function, but this thread already runs an"
                " event loop: call it from a plain def test, or on a separate thread"
            )
        try:
            return self._runner.run(_awaited(awaitable), context=copy_context())
        except BaseException as error:
            error.__traceback__ = _below(_awaited.__code__, error.__traceback__)
            raise

    def running(self, handler: Callable[[Record], Any]) -> Callable[[Record], object]:
        """Return a plain function that runs a handler's coroutine for a record to completion."""
        return lambda record: self.run(handler(record))


def _below(code: CodeType, trace: TracebackType | None) -> TracebackType | None:
    """Drop the frames of the loop, which do not explain the error."""
    below = trace
    while below is not None and below.tb_frame.f_code is not code:
        below = below.tb_next
    return trace if below is None else below.tb_next


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable
