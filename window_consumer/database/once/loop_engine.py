"""Engines of event loops: a connection belongs to the loop that opened it.

Each worker with coroutines has its own loop; a worker restarted in its process has a new one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")


class LoopEngines:
    """One engine with its own pool per loop. Any thread may use it.

    Each loop has a copy of the given engine, which the application may use in its own loop. A loop
    closes the connections of its copy when it shuts down its asynchronous generators.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopEngine] = (
            WeakKeyDictionary()
        )

    def of(self, engine: AsyncEngine) -> AsyncEngine:
        """Return the engine of the running loop."""
        if not isinstance(engine.pool, sa.QueuePool):
            return engine  # it keeps no connections, or intentionally a single one
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._engines.get(loop)
            if found is None:
                copy = _copy_of(engine)
                found = self._engines[loop] = _LoopEngine(copy, _disposed_at_end(copy))
                # Runs to its yield without suspending; from then on the loop knows the generator.
                with suppress(StopIteration):
                    found.end.__anext__().send(None)
        return found.engine

    def close_copies(self) -> None:
        """Forget the copies; their loops have ended."""
        with self._lock:
            self._engines.clear()


@frozen
class _LoopEngine:
    engine: AsyncEngine
    end: AsyncGenerator[None, None]
    """The loop has only a weak reference to it."""


async def _disposed_at_end(engine: AsyncEngine) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await engine.dispose()


def run_in_own_loop(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a new loop and thread: the caller's thread may run a loop."""
    with ThreadPoolExecutor(1, "wc-once-check") as thread:
        return thread.submit(lambda: asyncio.run(make())).result()


def _copy_of(engine: AsyncEngine) -> AsyncEngine:
    """Return an engine with the same settings and listeners, and an empty pool."""
    of: Any = engine.sync_engine
    copy: Any = sa.Engine(
        of.pool.recreate(),
        of.dialect,
        of.url,
        logging_name=of.logging_name,
        echo=of.echo,
        execution_options=of.get_execution_options(),
        hide_parameters=of.hide_parameters,
    )
    copy.dispatch = copy.dispatch._join(of.dispatch)  # noqa: SLF001 - as Engine.execution_options
    return AsyncEngine(copy)
