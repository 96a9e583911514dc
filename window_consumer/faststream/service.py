"""A FastStream application: its lifespan and hooks, and the loop that its calls share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, TypeVar

from faststream import FastStream
from faststream.asgi import AsgiFastStream

from window_consumer import UsageError

T = TypeVar("T")

Application = FastStream | AsgiFastStream

_HOOKS: Final = ("on_startup", "after_startup", "on_shutdown", "after_shutdown")
_NO_LIFESPAN: Final = "Application.__init__."
"""The prefix of FastStream's default lifespan function."""


class Service:
    """Runs the hooks once per process, on the event loop of the first worker.

    Resources belong to the loop that opened them, and FastStream has one. So the other workers'
    calls also run there. Owner: the loops of the workers.
    """

    def __init__(self, application: Application):
        self._application = application
        self._home: asyncio.AbstractEventLoop | None = None

    @property
    def hooks(self) -> Sequence[str]:
        """The kinds of hooks that the application has."""
        return hooks_of(self._application)

    async def lifespan(self) -> AsyncIterator[None]:
        """Run the hooks around the workers, in FastStream's order; on other loops, nothing."""
        if self._home is not None:
            yield
            return
        self._home = asyncio.get_running_loop()
        try:
            async with self._application.lifespan_context():
                await self._call("on_startup")
                await self._call("after_startup")
                try:
                    yield
                finally:
                    await self._call("on_shutdown")
                    await self._call("after_shutdown")
        finally:
            self._home = None

    async def at_home(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call on the loop of the hooks; return its result or raise its exception."""
        home = self._home
        if home is None or home is asyncio.get_running_loop():
            return await call()
        return await _called_on(home, call)

    async def _call(self, kind: str) -> None:
        for hook in _functions(self._application, kind):
            await hook()


async def _called_on(
    loop: asyncio.AbstractEventLoop, call: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """Return the result of a call on another loop; a cancelled one may clean up first."""
    here, done = asyncio.get_running_loop(), asyncio.Event()
    tasks: list[asyncio.Task[T]] = []

    def on_done(_task: asyncio.Task[T]) -> None:
        with suppress(RuntimeError):  # it is closed, and nobody waits
            here.call_soon_threadsafe(done.set)

    def begin() -> None:
        tasks.append(loop.create_task(call()))
        tasks[0].add_done_callback(on_done)

    def cancel() -> None:
        tasks[0].cancel()

    loop.call_soon_threadsafe(begin, context=copy_context())
    try:
        await done.wait()
    except asyncio.CancelledError:
        loop.call_soon_threadsafe(cancel)
        await done.wait()
        raise
    return tasks[0].result()


def service_of(broker: Any) -> Service | None:
    """Return the runner of the hooks, if a FastStream application was given instead of a broker."""
    return Service(broker) if isinstance(broker, Application) else None


def only_broker_of(application: Any) -> Any:
    """Return an application's only broker. Raises UsageError without one, or if it serves HTTP."""
    if getattr(application, "routes", ()):
        raise UsageError(
            "worker_of: asgi_routes= of AsgiFastStream are not served: remove them, or serve"
            " them in a separate process"
        )
    if len(application.brokers) != 1:
        raise UsageError(
            f"worker_of: the FastStream application has {len(application.brokers)} brokers, but"
            " worker_of takes one: give each its own application"
        )
    return application.brokers[0]


def refuse_hooks(broker: Any) -> None:
    """Raise UsageError for a broker whose application has hooks, which would not run."""
    application = broker.context.get("app")
    hooks = hooks_of(application) if isinstance(application, Application) else ()
    if hooks:
        raise UsageError(
            f"worker_of: the broker's FastStream application has {', '.join(hooks)}, which a worker"
            " of only the broker does not run: call worker_of(app) with the application"
        )


def hooks_of(application: Application) -> Sequence[str]:
    """Return the kinds of hooks that an application has."""
    name = getattr(application.lifespan_context, "__qualname__", "")
    lifespan = () if name.startswith(_NO_LIFESPAN) else ("lifespan",)
    return (*lifespan, *(kind for kind in _HOOKS if _functions(application, kind)))


def _functions(application: Application, kind: str) -> Sequence[Callable[[], Any]]:
    functions: Sequence[Callable[[], Any]] = getattr(application, f"_{kind}_calling")
    return functions
