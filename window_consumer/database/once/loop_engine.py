"""Engines of event loops: a connection belongs to the loop that opened it.

Each worker with coroutines has its own loop; a worker restarted in its process has a new one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")


class LoopEngines:
    """One engine with its own pool per loop. Any thread may call.

    The first loop gets the given engine, the others get copies of it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncEngine] = (
            WeakKeyDictionary()
        )
        self._given: AsyncEngine | None = None
        self._copies: list[AsyncEngine] = []

    def of(self, engine: AsyncEngine) -> AsyncEngine:
        """Return the engine of the running loop."""
        if not isinstance(engine.pool, sa.QueuePool):
            return engine  # it keeps no connections, or intentionally a single one
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._engines.get(loop)
            if found is None:
                found = engine
                if self._given is engine:
                    found = _copy_of(engine)
                    self._copies.append(found)
                self._given = engine
                self._engines[loop] = found
        return found

    def close_copies(self) -> None:
        """Close the connections of all copies; their loops have ended."""
        with self._lock:
            copies = self._copies[:]
            self._copies.clear()
            for loop, engine in list(self._engines.items()):
                if engine in copies:
                    del self._engines[loop]
        if copies:
            run_in_own_loop(lambda: _dispose(copies))


def run_in_own_loop(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a new loop and thread: the caller's thread may run a loop."""
    with ThreadPoolExecutor(1, "wc-once-check") as thread:
        return thread.submit(lambda: asyncio.run(make())).result()


async def _dispose(engines: Iterable[AsyncEngine]) -> None:
    for engine in engines:
        await engine.dispose()


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
