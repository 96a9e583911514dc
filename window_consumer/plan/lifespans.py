"""Lifespans as context managers. One task enters and exits an asynchronous lifespan."""

from __future__ import annotations

import asyncio
import contextlib
import dis
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from typing import Any

from attrs import frozen

from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.handlers import expect_arguments, place_of
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.runtime.error_report import lifespan_error
from window_consumer.runtime.pools.event_loop import EventLoop

OnOver = Callable[[BaseException], None]
"""Called on the lifespan's loop with the reason when a lifespan ends by itself."""


class LifespanTask:
    """Keeps an asynchronous context entered. Owner: the loop that enters it.

    A context may end by itself, as a task group does when one of its tasks fails; this also ends
    everything entered within it.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Any]], on_over: OnOver):
        self._make = make
        self._on_over = on_over
        self._entered: asyncio.Future[Any]
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None]

    async def enter(self) -> Any:
        """Enter the context; return what it yields, raise what it raises."""
        self._entered = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name="wc-lifespan")
        await asyncio.wait([self._task, self._entered], return_when=asyncio.FIRST_COMPLETED)
        if not self._entered.done():
            await self._task
        self._task.add_done_callback(self._on_done)
        return self._entered.result()

    async def leave(self) -> None:
        """Exit the context; raise what it raises, or has raised meanwhile."""
        self._leaving.set()
        await self._task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not self._leaving.is_set():
            error = None if task.cancelled() else task.exception()
            self._on_over(error or asyncio.CancelledError())

    async def _live(self) -> None:
        async with self._make() as state:
            self._entered.set_result(state)
            await self._leaving.wait()


Lifespan = (
    Callable[[], Iterator[Any]]
    | Callable[[], AbstractContextManager[Any]]
    | Callable[[], AsyncIterator[Any]]
    | Callable[[], AbstractAsyncContextManager[Any]]
)

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine on a loop and returns its result."""

_FORMS = "a function with one yield, or return a context manager, asynchronous or not"


@frozen
class StatesByWorker:
    """The states of an asynchronous lifespan that was entered on several loops."""

    of: Mapping[str, Any]
    """By worker, for workers with coroutines and their loops."""
    others: Any

    @staticmethod
    def state_for(state: Any, worker: str) -> Any:
        """Return ``record.state`` for a worker."""
        if isinstance(state, StatesByWorker):
            return state.of.get(worker, state.others)
        return state


def is_async_lifespan(lifespan: Lifespan | None) -> bool:
    """Return whether a lifespan must be entered on an event loop.

    A plain function that returns a context manager shows it by its annotation or by the function
    that it wraps.
    """
    if lifespan is None:
        return False
    bare = inspect.unwrap(lifespan)
    if inspect.isasyncgenfunction(bare):
        return True
    if inspect.isgeneratorfunction(bare):
        return False
    if isinstance(lifespan, type):
        return hasattr(lifespan, "__aenter__")
    returned = getattr(bare, "__annotations__", {}).get("return", "")
    name = returned if isinstance(returned, str) else getattr(returned, "__name__", str(returned))
    return "Async" in name or hasattr(returned, "__aenter__")


def refuse_what_opens_nothing(lifespan: Lifespan) -> None:
    """Raise UsageError for a function that clearly returns no context manager.

    Only a call would show its result for certain, and a call opens resources.
    """
    if not callable(lifespan):
        raise UsageError(f"@app.lifespan: {lifespan!r} must be {_FORMS}")
    expect_arguments(lifespan, "@app.lifespan")
    bare = inspect.unwrap(lifespan)
    if inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare):
        return
    is_coroutine = inspect.iscoroutinefunction(bare)
    if is_coroutine or (inspect.isfunction(bare) and _returns_constants(bare)):
        name = getattr(lifespan, "__qualname__", lifespan)
        raise UsageError(
            f"{place_of(lifespan)}: @app.lifespan: {name} has no yield: it must be {_FORMS}"
        )


def _returns_constants(function: Any) -> bool:
    """Return whether a function can return only constants, such as None."""
    before, returned = None, []
    for step in dis.get_instructions(function):
        if step.opname == "RETURN_CONST":
            returned.append(True)
        elif step.opname == "RETURN_VALUE":
            is_constant = before is not None and before.opname == "LOAD_CONST"
            returned.append(is_constant and not step.is_jump_target)
        before = step
    return bool(returned) and all(returned)


def as_context(lifespan: Lifespan | None) -> AbstractContextManager[Any]:
    """Return a context manager for the lifespan; without one, it yields None."""
    if lifespan is None:
        return contextlib.nullcontext()
    if inspect.isgeneratorfunction(lifespan):
        return contextlib.contextmanager(lifespan)()
    context: Any = lifespan()
    if not isinstance(context, AbstractContextManager):
        raise UsageError(_refusal(lifespan, context))
    return context


def as_async_context(lifespan: Lifespan) -> AbstractAsyncContextManager[Any]:
    """Return an asynchronous context manager for the lifespan. Called on the loop."""
    if inspect.isasyncgenfunction(lifespan):
        return contextlib.asynccontextmanager(lifespan)()
    context: Any = lifespan()
    if not isinstance(context, AbstractAsyncContextManager):
        raise UsageError(_refusal(lifespan, context))
    return context


def _refusal(lifespan: Lifespan, context: object) -> str:
    if inspect.iscoroutine(context):
        context.close()
    name = getattr(lifespan, "__qualname__", lifespan)
    if isinstance(context, AbstractAsyncContextManager):
        return (
            f"@app.lifespan: {name} returned an asynchronous context manager"
            f" ({type(context).__name__}), which its signature does not show: annotate its return"
            " type, as in -> AbstractAsyncContextManager[Pool], or write it as async def with one"
            " yield"
        )
    return f"@app.lifespan: {name} must be {_FORMS}; it returned {type(context).__name__}"


def _log_over(error: BaseException) -> None:
    LOGGER.error(
        "%s: its resources are gone",
        lifespan_error(error, "ended by itself"),
        extra={"event": LogEvent.LIFESPAN_ENDED},
    )


@contextlib.contextmanager
def entered_by(run: Run, lifespan: Lifespan, on_over: OnOver | None = None) -> Iterator[Any]:
    """Enter and exit an asynchronous lifespan on one loop, both in the same task."""
    task = LifespanTask(lambda: as_async_context(lifespan), on_over or _log_over)
    state = run(task.enter())
    try:
        yield state
    finally:
        run(task.leave())


@contextlib.contextmanager
def entered_on(
    loops: Mapping[str, EventLoop], lifespan: Lifespan, on_over: OnOver, *, with_others: bool
) -> Iterator[StatesByWorker]:
    """Enter an asynchronous lifespan on the loop of each worker, and once for all others.

    Starts the workers' loops, which continue afterwards if a worker uses them.
    """
    others = EventLoop("wc-lifespan-loop")
    with ExitStack() as stack:

        def entered(loop: EventLoop) -> Any:
            stack.callback(_stop_unused, loop)
            loop.start()
            return stack.enter_context(entered_by(loop.run, lifespan, on_over))

        states = {worker: entered(loop) for worker, loop in loops.items()}
        yield StatesByWorker(states, entered(others) if with_others else None)


@contextlib.contextmanager
def entered_alone(lifespan: Lifespan) -> Iterator[Any]:
    """Enter and exit an asynchronous lifespan on a separate loop: in a child process.

    If the lifespan ends by itself, the process exits, and its successor enters it again.
    """

    def end(error: BaseException) -> None:
        _log_over(error)
        os._exit(1)

    with entered_on({}, lifespan, end, with_others=True) as states:
        yield states.others


def _stop_unused(loop: EventLoop) -> None:
    if not loop.is_used:
        loop.stop(_STOP_S)


_STOP_S = 1.0


def resources_on(
    lifespan: Lifespan | None, loops: Mapping[str, EventLoop], plan: AppPlan, on_over: OnOver
) -> AbstractContextManager[Any]:
    """Return the lifespan for the workers in this process, excluding its children.

    ``loops`` are the event loops of the workers with coroutines, by worker.
    """
    here = [worker for worker in plan.workers if not worker.pool.has_children]
    if not here:
        return contextlib.nullcontext()
    if lifespan is not None and is_async_lifespan(lifespan):
        return entered_on(loops, lifespan, on_over, with_others=len(loops) < len(here))
    return as_context(lifespan)
