"""An event loop on a thread of its own: where coroutines run that others hand in."""

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
from window_consumer.runtime.threads import (
    OnDeath,
    WatchedThread,
)

T = TypeVar("T")

PULSE_S = 0.1
"""How often the loop notes that it goes round ..."""

BLOCKED_S = 0.5
"""... and after how long without a note something keeps it from doing so."""

_LAST_TASKS_S = 1.0
"""How long tasks that were left behind may clean up when the loop ends."""

_log = own_logger()


class EventLoop:
    """A thread that runs an event loop until it is stopped. Any thread may call it.

    What escapes from a callback or a task (SystemExit, KeyboardInterrupt) is logged, and the loop
    goes on. The thread is a daemon: a coroutine that never gives the loop back must not keep the
    process alive.
    """

    def __init__(self, name: str):
        self.on_death: OnDeath = lambda _error: None
        """Hears why its thread has ended, if that was not asked for."""
        self.thread = WatchedThread(self._run, name, self._died)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_there = threading.Event()
        self._stopping = False
        self.is_used = False
        """A pool runs on it, and stops it."""
        self.pulse_at = 0.0
        """When the loop went round last, as far as it has noted."""
        self.computed_s = 0.0
        """How long its thread had a processor, as far as it has noted."""
        self.late_s = 0.0
        """How much later than after ``PULSE_S`` it went round, all together."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop itself; there is one from ``start`` on."""
        assert self._loop is not None
        return self._loop

    @property
    def is_blocked(self) -> bool:
        """Something that runs on the loop does not give it back."""
        return perf_counter() - self.pulse_at > BLOCKED_S

    def start(self) -> None:
        """Start the thread, unless it has been started, and wait for its loop."""
        if self.thread.ident is None:
            self.thread.start()
        self._is_there.wait()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Let the loop call a function soon; does nothing once the loop is closed."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for what it returns or raises.

        Owner: any thread but the loop's.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def stop(self, timeout_s: float) -> bool:
        """Cancel what still runs and end the thread; False where it has not ended in time."""
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
            # Whoever stops the loop from within, or ends it by an exception, has not been asked.
            try:
                loop.run_forever()
            except BaseException:
                _log.exception(
                    "%s: this escaped from a task; the loop goes on",
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
    """Return a new event loop: uvloop's where that is installed."""
    try:
        import uvloop  # noqa: PLC0415 - optional, and only who runs coroutines needs it
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _end_all() -> None:
    """Cancel all other tasks and wait for them, not for ever: they may refuse to end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_LAST_TASKS_S)
