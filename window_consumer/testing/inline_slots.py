"""Slots and a completions queue on the test's own thread, which a debugger can follow.

A slot runs the runtime's own ``call_each``. Queued slices are called one after the other, in the
Engine's order.
"""

from __future__ import annotations

import sys
import threading
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

from window_consumer.engine.guards.stuck_calls import Ending, Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import CallAgain, NotCalled, Skip
from window_consumer.model.fault import Failure
from window_consumer.model.produce import results_of
from window_consumer.model.record import Message, Record
from window_consumer.runtime.calls.batch_calls import HeldResults, call_batch, failed_of
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.record_calls import call_each
from window_consumer.runtime.context import Slot, current_slot
from window_consumer.runtime.pools.inline_event_loop import InlineEventLoop
from window_consumer.testing.journal import Journal


class InlineSlots:
    """A pool that calls handlers on demand. Owner: one thread."""

    ending: ClassVar[Ending] = "cancelled"
    """No call ever is cancelled: nothing else happens while one runs."""
    slots: ClassVar[int] = sys.maxsize
    """As many as the Engine uses."""

    def __init__(  # noqa: PLR0913 - the arguments of every pool, and the test's parts
        self,
        worker: str,
        caller: Caller,
        completions: SimpleQueue[Any],
        state: Any,
        journal: Journal,
        now: Callable[[], float],
        loop: InlineEventLoop | None = None,
    ):
        """``loop`` is given if the handler returns coroutines."""
        handler: Any = caller.handler if loop is None else loop.running(caller.handler)
        describe = _kept(caller.describe)
        self._caller = Caller(_watched(handler, worker, journal), describe)
        self._batch_caller = Caller(_watched_batches(handler, worker, journal), describe)
        self._on_stored = journal.storing(worker)
        self._completions = completions
        self._state = state
        self._now = now
        self._waiting: deque[Slice] = deque()
        self.calling = False
        """Whether a handler is being called now."""

    def start(self) -> None:
        """Do nothing: there are no threads to start."""

    def stop(self, timeout_s: float) -> int:  # noqa: ARG002 - there is nothing to wait for
        """Drop queued slices."""
        self._waiting.clear()
        return 0

    def submit(self, slice_: Slice) -> None:
        """Queue a slice."""
        self._waiting.append(slice_)

    def inspect(self, stalled: Stalled) -> Failure | None:  # noqa: ARG002 - nothing runs meanwhile
        """Return None: by now the call has returned."""
        return None

    def interrupt(self, slices: Sequence[Slice]) -> bool:  # noqa: ARG002 - as above
        """Return False: there is nothing to end."""
        return False

    def work(self) -> bool:
        """Call the handlers for one slice; return False if none waits."""
        if not self._waiting:
            return False
        slice_ = self._waiting.popleft()
        slot = Slot()
        token = current_slot.set(slot)
        slice_.thread = threading.get_ident()
        slice_.call.state = self._state
        slice_.call.on_stored = self._on_stored
        slice_.started = started = self._now()
        self.calling = True
        try:
            if slice_.is_batch:
                call_batch(slice_, self._batch_caller, slot)
            else:
                call_each(slice_, self._caller, slot)
        finally:
            self.calling = False
            current_slot.reset(token)
        slice_.elapsed = self._now() - started
        self._completions.put(slice_)
        return True


def _watched(handler: Callable[[Record], Any], worker: str, journal: Journal) -> Any:
    """Return a handler whose calls are recorded in the journal."""

    def call(record: Record) -> object:
        handling = journal.of(worker, record._message)  # noqa: SLF001 - the record that it wraps
        noted = handling.called(record.attempt)
        try:
            returned = handler(record)
            results_of(returned)  # raises the same error as the slot
        except BaseException as error:
            if _is_uncalled(error):
                handling.calls.remove(noted)
            else:
                noted.error = error
            raise
        else:
            return returned

    return call


def _watched_batches(handler: Callable[[list[Record]], Any], worker: str, journal: Journal) -> Any:
    """Return a batch handler that records a call for each record in the journal."""

    def call(records: list[Record]) -> object:
        handlings = [journal.of(worker, each._message) for each in records]  # noqa: SLF001 - the record that it wraps
        noted = [h.called(r.attempt) for h, r in zip(handlings, records, strict=True)]
        places = {id(record): place for place, record in enumerate(records)}
        try:
            returned = handler(records)
            results_of(returned)  # raises the same error as the slot
        except BaseException as error:
            for record, reason in failed_of(error, records):
                place = places[id(record)]
                if _is_uncalled(reason):
                    handlings[place].calls.remove(noted[place])
                else:
                    noted[place].error = reason
            raise
        else:
            return returned

    return call


def _is_uncalled(error: BaseException) -> bool:
    """Return whether a layer around the handler raised this instead of calling it."""
    if isinstance(error, Skip) and not error.outcome.calls_handler:
        return True
    return isinstance(error, NotCalled | CallAgain | HeldResults)


def _kept(
    describe: Callable[[BaseException, str, Sequence[Message]], Failure],
) -> Callable[[BaseException, str, Sequence[Message]], Failure]:
    """Describe an exception as the runtime does, and keep its traceback for the test.

    Anything but a handler's error is raised to the test: Ctrl-C, a crash on demand, and a test
    framework's verdicts, such as pytest.fail.
    """

    def describe_it(error: BaseException, handler: str, records: Sequence[Message] = ()) -> Failure:
        if not isinstance(error, Exception | SystemExit | CancelledError):
            raise error
        # Drop the slot's frame. The runtime then drops the first one left, the journal's.
        trace = error.__traceback__
        error.__traceback__ = trace.tb_next if trace is not None else None
        try:
            return describe(error, handler, records)
        finally:
            error.__traceback__ = trace

    return describe_it


class InlineQueue(SimpleQueue[Any]):
    """A completions queue on which waiting calls ``work``. Owner: one thread."""

    def __init__(self, work: Callable[[float], None]):
        self._work = work
        self._items: deque[Any] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: ARG002, FBT001, FBT002 - SimpleQueue's
        """Add an item."""
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ARG002, FBT001, FBT002 - SimpleQueue's
        """Return the next item; call ``work`` when a thread would wait."""
        if not self._items and timeout:
            self._work(timeout)
        return self.get_nowait()

    def get_nowait(self) -> Any:
        """Return the next item; ``Empty`` without one."""
        if not self._items:
            raise Empty
        return self._items.popleft()

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return not self._items
