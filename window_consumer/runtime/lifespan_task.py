"""A task that enters a context, waits, and leaves it: what is within may belong to one task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

OnOver = Callable[[BaseException], None]
"""Hears why a lifespan is over that nobody has left. Called on the lifespan's loop."""


class LifespanTask:
    """Keeps an asynchronous context entered. Owner: the loop on which it is entered.

    A context may end by itself: a group of tasks does when one of them fails, and takes along
    whatever was entered within it.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Any]], on_over: OnOver):
        self._make = make
        self._on_over = on_over
        self._entered: asyncio.Future[Any]
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None]

    async def enter(self) -> Any:
        """Enter the context; returns what it yields, raises what it raises."""
        self._entered = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name="wc-lifespan")
        await asyncio.wait([self._task, self._entered], return_when=asyncio.FIRST_COMPLETED)
        if not self._entered.done():
            await self._task
        self._task.add_done_callback(self._look_why)
        return self._entered.result()

    async def leave(self) -> None:
        """Leave the context; raises what it raises, or has raised meanwhile."""
        self._leaving.set()
        await self._task

    def _look_why(self, task: asyncio.Task[None]) -> None:
        if not self._leaving.is_set():
            error = None if task.cancelled() else task.exception()
            self._on_over(error or asyncio.CancelledError())

    async def _live(self) -> None:
        async with self._make() as state:
            self._entered.set_result(state)
            await self._leaving.wait()
