"""Slots as threads: each takes a slice, calls the handler for its records, and reports back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from time import perf_counter, thread_time
from typing import Any, ClassVar, Final

from attrs import define

from window_consumer.engine.guards.stuck_calls import Ending, Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure
from window_consumer.runtime.calls.batch_calls import call_batch
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.record_calls import call_each
from window_consumer.runtime.context import Slot, current_slot
from window_consumer.runtime.pools.pool import PoolKind
from window_consumer.runtime.stack import handlers_part
from window_consumer.runtime.threads import WatchedThread

__handler_slot__ = True  # its frames are no part of a failure, see runtime/stack.py


@define
class _SlotProgress:
    """The progress of a slot's thread, which alone writes it."""

    over: int = 0
    """The number of finished slices."""
    ended: bool = False
    """Whether the thread has ended on request."""


class ThreadPool:
    """Threads between a work queue and a completions queue, started when slices would wait.

    They are daemons: a handler that never returns must not keep the process alive. A thread whose
    call is abandoned is replaced, and ends when the call returns.

    Removing a slice from ``_running`` decides whether it completes or is abandoned: its slot
    removes it, or the poll thread does. The removal is one call into C.
    """

    ending: ClassVar[Ending] = "cancelled"
    """Unused: a thread's call cannot be ended."""

    def __init__(
        self, worker: str, slots: int, caller: Caller, completions: SimpleQueue[Any], state: Any
    ):
        self._work: SimpleQueue[Slice | None] = SimpleQueue()
        self._completions = completions
        self._caller = caller
        self._state = state
        self._worker = worker
        self.slots = self._used = slots
        self._running: dict[Slice, threading.Thread] = {}
        self._threads: dict[threading.Thread, _SlotProgress] = {}
        self._leaving = 0
        """The number of threads that were asked to end."""
        self._made = 0
        self._submitted = 0
        """The number of slices that these threads took, plus those that wait."""

    def start(self) -> None:
        """Start nothing: threads start on demand, because many slots may never be used."""

    def submit(self, slice_: Slice) -> None:
        """Queue a slice; the next free slot takes it."""
        self._work.put(slice_)
        self._submitted += 1
        if len(self._threads) - self._leaving < self._used:
            self._fill_up()

    @property
    def is_ready(self) -> bool:
        """Whether the slots can begin, which is always the case here."""
        return True

    def use(self, slots: int) -> None:
        """Limit the number of slots that take slices from now on; running calls may end."""
        for thread, progress in list(self._threads.items()):
            if progress.ended:
                self._submitted -= progress.over
                self._leaving -= 1
                del self._threads[thread]
        self._used = slots
        for _ in range(len(self._threads) - self._leaving - slots):
            self._work.put(None)
            self._leaving += 1
        self._fill_up()

    def _fill_up(self) -> None:
        """Start threads for slices that would wait although slots are free."""
        waiting = self._submitted - sum(each.over for each in self._threads.values())
        for _ in range(min(waiting, self._used) - len(self._threads) + self._leaving):
            self._add_thread().start()

    def inspect(self, stalled: Stalled) -> Failure | None:
        """Return the position of a call that does not return; None if it has returned.

        A call to abandon gives its slot to a new thread.
        """
        slice_ = stalled.slice_
        frame = sys._current_frames().get(slice_.thread)
        if stalled.abandon:
            thread = self._running.pop(slice_, None)
            if thread is None:
                return None
            self._submitted -= self._threads.pop(thread).over + 1
            self._add_thread().start()
        elif slice_ not in self._running:
            return None
        where = handlers_part(frame)
        return self._caller.describe_stall(where, stalled.seconds, slice_.call.handler, "")

    def interrupt(self, slices: Sequence[Slice]) -> bool:  # noqa: ARG002 - a thread cannot be ended
        """Do nothing: a thread cannot be ended."""
        return False

    def stop(self, timeout_s: float) -> int:
        """Let the slots end after their current calls; return how many outlast ``timeout_s``.

        Threads with abandoned calls do not count.
        """
        for _ in self._threads:
            self._work.put(None)
        deadline = perf_counter() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - perf_counter()))
        return sum(thread.is_alive() for thread in self._threads)

    def _add_thread(self) -> threading.Thread:
        name = f"wc-{self._worker}-slot-{self._made}"
        progress = _SlotProgress()
        thread = WatchedThread(self._run, name, self._completions.put, (progress,))
        self._made += 1
        self._threads[thread] = progress
        return thread

    def _run(self, progress: _SlotProgress) -> None:
        work = self._work
        running = self._running
        thread = threading.current_thread()
        completions = self._completions
        caller = self._caller
        state = self._state
        ident = threading.get_ident()
        slot = Slot()
        current_slot.set(slot)
        while (slice_ := work.get()) is not None:
            slice_.thread = ident
            slice_.call.state = state
            slice_.call.whose = caller.whose
            running[slice_] = thread
            computed = thread_time()
            slice_.started = started = perf_counter()
            (call_batch if slice_.is_batch else call_each)(slice_, caller, slot)
            slice_.elapsed = perf_counter() - started
            slice_.computed = thread_time() - computed
            is_mine = running.pop(slice_, None) is not None
            progress.over += is_mine
            completions.put(slice_)
            del slice_
            if not is_mine:
                return  # another thread has taken this one's place
        progress.ended = True


THREADS: Final = PoolKind(name="threads", make=lambda _parts: ThreadPool, coroutines_on="asyncio")
