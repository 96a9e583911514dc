"""An application within an event loop: ``async with app.running("workers.yaml")``.

Start, drain and stop may take long, so a thread runs them; the loop never waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from window_consumer.runtime.running import Running

THREAD: Final = "wc-embedding"

StopAsked = Callable[[], bool]
Start = Callable[[StopAsked], Running]
OnFailure = Callable[[BaseException], object]


class EmbeddedRun:
    """Starts an application on a separate thread, which waits for its end.

    Owner: the event loop that creates it.
    """

    def __init__(self, start: Start):
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._given_up = threading.Event()
        self.started: asyncio.Future[Running] = self._loop.create_future()
        self.started.add_done_callback(self._on_started)
        self.ended: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._run, name=THREAD, daemon=True).start()

    def give_up(self) -> None:
        """Stop the start, or the started application; return at once."""
        self._given_up.set()
        if self.started.done():
            self._on_started(self.started)

    def _on_started(self, started: asyncio.Future[Running]) -> None:
        # Retrieving the exception keeps asyncio from reporting that it was never retrieved.
        if started.exception() is None and self._given_up.is_set():
            started.result().stop()

    def _run(self) -> None:
        try:
            running = self._start(self._given_up.is_set)
        except BaseException as error:
            self._in_loop(self.started.set_exception, error)
        else:
            if not self._in_loop(self.started.set_result, running):
                running.stop()
            running.wait()
        self._in_loop(self.ended.set_result, None)

    def _in_loop(self, function: Callable[[Any], None], given: object) -> bool:
        """Call a function in the loop; return False if the loop is closed, so nobody waits."""
        try:
            self._loop.call_soon_threadsafe(function, given)
        except RuntimeError:
            return False
        return True


@asynccontextmanager
async def embedded(start: Start, on_failure: OnFailure | None) -> AsyncGenerator[Running, None]:
    """Run an application beside the block, see ``App.running``."""
    block = asyncio.current_task()
    assert block is not None, "an asynchronous context manager is entered in a task"
    run = EmbeddedRun(start)
    try:
        await asyncio.wait([run.started])
    except asyncio.CancelledError:
        run.give_up()
        await asyncio.wait([run.ended])
        raise
    running = run.started.result()
    interruption = _Interruption(running, block, on_failure)
    run.ended.add_done_callback(interruption.on_end)
    try:
        yield running
    except asyncio.CancelledError:
        if not interruption.caused_it():
            raise
    finally:
        interruption.block_has_ended = True
        running.stop()
        await asyncio.wait([run.ended])
    if running.failure is not None:
        raise running.failure


class _Interruption:
    """Interrupts a block whose application has failed. Owner: the event loop."""

    def __init__(self, running: Running, block: asyncio.Task[Any], on_failure: OnFailure | None):
        self._running = running
        self._block = block
        self._on_failure = on_failure
        self._cancels_before = block.cancelling()
        self._cancelled = False
        self.block_has_ended = False

    def on_end(self, _: asyncio.Future[None]) -> None:
        """Report a failure, unless the block or ``stop`` requested the end."""
        failure = self._running.failure
        if failure is None or self.block_has_ended:
            return
        if self._on_failure is not None:
            self._on_failure(failure)
        else:
            self._cancelled = True
            self._block.cancel()

    def caused_it(self) -> bool:
        """Return whether the block was cancelled only because of the failure.

        As in asyncio.timeout, a cancellation from elsewhere takes precedence.
        """
        return self._cancelled and self._block.uncancel() <= self._cancels_before
