"""An event loop on its own thread, for coroutines of other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import perf_counter, thread_time
from typing import Any, TypeVar

from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.threads import OnDeath, WatchedThread

T = TypeVar("T")

PULSE_S = 0.1
"""How often the loop records that it runs."""

BLOCKED_S = 0.5
"""The loop counts as blocked when it has recorded nothing for this long."""

_LAST_TASKS_S = 1.0
"""How long leftover tasks may clean up when the loop ends."""

_log = own_logger()


class EventLoop:
    """A thread that runs an event loop until it is stopped. Any thread may call it.

    An exception that escapes from a callback or task (SystemExit, KeyboardInterrupt) is logged, and
    the loop continues. The thread is a daemon: a coroutine that never yields must not keep the
    process alive.
    """

    def __init__(self, name: str):
        self.on_death: OnDeath = lambda _error: None
        """Called with the reason if the thread ends unexpectedly."""
        self.thread = WatchedThread(self._run, name, self._died)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_there = threading.Event()
        self._stopping = False
        self.is_used = False
        """Whether a pool uses the loop, and so stops it."""
        self.pulse_at = 0.0
        """When the loop last recorded that it runs."""
        self.computed_s = 0.0
        """The CPU time of its thread, at the last pulse."""
        self.late_s = 0.0
        """The sum of the delays of its pulses, in seconds."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop itself; available from ``start`` on."""
        assert self._loop is not None
        return self._loop

    @property
    def is_started(self) -> bool:
        """Whether ``start`` has returned."""
        return self._is_there.is_set()

    @property
    def is_blocked(self) -> bool:
        """Whether a task or callback blocks the loop."""
        return perf_counter() - self.pulse_at > BLOCKED_S

    def start(self) -> None:
        """Start the thread if necessary, and wait for its loop."""
        if self.thread.ident is None:
            self.thread.start()
        self._is_there.wait()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Schedule a function on the loop; does nothing once the loop is closed."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop; return or raise what it does.

        Owner: any thread but the loop's.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def stop(self, timeout_s: float) -> bool:
        """Cancel the running tasks and end the thread; return False if it has not ended in time."""
        if self.thread.ident is None:
            return True
        self._stopping = True
        self.call(self.loop.stop)
        self.thread.join(timeout_s)
        return not self.thread.is_alive()

    def _died(self, error: WorkerStoppedError) -> None:
        self.on_death(error)

    def _run(self) -> None:
        self._loop = loop = make_loop()
        asyncio.set_event_loop(loop)
        self._pulse()
        self._is_there.set()
        while not self._stopping:
            # User code may stop the loop from within or end it with an exception; neither is a
            # stop.
            try:
                loop.run_forever()
            except BaseException:
                _log.exception(
                    "%s: this escaped from a task; the loop continues",
                    self.thread.name,
                    extra={"event": LogEvent.TASK_ESCAPED},
                )
        try:
            loop.run_until_complete(_end_all())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        except BaseException:
            _log.exception(
                "%s: this escaped from a task at the end",
                self.thread.name,
                extra={"event": LogEvent.TASK_ESCAPED},
            )
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _pulse(self) -> None:
        now = perf_counter()
        if self.pulse_at:
            self.late_s += max(0.0, now - self.pulse_at - PULSE_S)
        self.computed_s = thread_time()
        self.pulse_at = now
        self.loop.call_later(PULSE_S, self._pulse)


def make_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, from uvloop if that is installed."""
    try:
        import uvloop  # noqa: PLC0415 - optional, and only coroutines need it
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _end_all() -> None:
    """Cancel all other tasks and wait for them, with a limit: they may refuse to end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_LAST_TASKS_S)
