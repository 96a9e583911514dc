"""Slots as tasks of one event loop: each takes a slice, awaits the handler and reports back.

A ``CallTask`` lives across slices and takes whatever is queued. There are only as many tasks as
slices have run at once.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import Iterable, Sequence
from contextvars import Context
from functools import partial
from operator import length_hint
from queue import SimpleQueue
from time import perf_counter
from typing import Any, ClassVar, Final

from attrs import evolve

from window_consumer.engine.guards.stuck_calls import Ending, Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.windows_snapshot import LoopSnapshot
from window_consumer.model.fault import Failure
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.coroutine_calls import (
    INTERRUPTED,
    CallTask,
    Interrupted,
    apart,
    call_batch,
    call_each,
    leaves_traces,
)
from window_consumer.runtime.context import current_slot
from window_consumer.runtime.figures.stack_dump import Coroutines, task_stack
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.pools.event_loop import EventLoop
from window_consumer.runtime.pools.pool import PoolKind
from window_consumer.runtime.stack import Where, handlers_part

_BLOCKS = ", and it blocks the event loop: until it returns nothing else runs in this worker"

_log = own_logger()


class AsyncPool:
    """A fixed number of slots on an event loop's thread, between two queues.

    Removing a slice from ``_running`` decides whether it completes or is abandoned: its slot
    removes it on the loop, or the poll thread does. All other slot state belongs to the loop.
    """

    ending: ClassVar[Ending] = "cancelled"

    def __init__(
        self,
        worker: str,
        slots: int,
        caller: Caller,
        completions: SimpleQueue[Any],
        state: Any,
        loop: EventLoop | None = None,
    ):
        self._worker = worker
        self._caller = caller
        self._completions = completions
        self._state = state
        self._loop = loop or EventLoop(f"wc-{worker}-loop")
        self._waiting: deque[Slice] = deque()
        """Slices without a slot. The poll thread appends, the loop removes."""
        self._rousing = False
        """Whether the loop has been asked to check ``_waiting``."""
        self._running: dict[Slice, CallTask] = {}
        self.slots = self._used = slots
        self._free = slots
        """The number of free slots; negative while more are occupied than allowed."""
        self._idle: list[tuple[CallTask, asyncio.Future[None]]] = []
        """Tasks without a slot, each with the future that wakes it."""
        self._is_apart = False
        """Whether each call has a context of its own, because one left something in its task's
        context."""
        self._last: CallTask | None = None
        """The task that began a slice last."""
        self._blocked_at: float | None = None

    # ---- for the poll thread

    def start(self) -> None:
        """Start the loop, unless it already runs."""
        self._loop.is_used = True
        self._loop.on_death = self._completions.put
        self._loop.start()

    def submit(self, slice_: Slice) -> None:
        """Queue a slice; the next free slot takes it.

        Waking the loop costs as much as a call, so many slices wake it once. Without a free slot
        none does: busy slots check for more work before they release themselves.
        """
        self._waiting.append(slice_)
        if self._free > 0 and not self._rousing:
            self._rousing = True
            self._loop.call(self._rouse)

    @property
    def is_ready(self) -> bool:
        """Whether the slots can begin, which is always the case here."""
        return True

    def use(self, slots: int) -> None:
        """Limit the number of slots that take slices from now on; running calls may end."""
        more, self._used = slots - self._used, slots
        if self._loop.is_started:
            self._loop.call(self._resize, more)
        else:
            self._free += more  # the loop's, once it runs

    def inspect(self, stalled: Stalled) -> Failure | None:
        """Return the position of a call that does not return; None if it has returned.

        Also return None if it only waits for another call that blocks the loop. A call to abandon
        gives its slot to another task. A call to end is cancelled.
        """
        slice_ = stalled.slice_
        task = self._running.get(slice_)
        if task is None:
            return None
        blocker = self._blocker()
        if blocker is not None and blocker is not task:
            if not isinstance(blocker, CallTask):
                self._report_blocked(blocker)
            return None
        where = self._where(task)
        if stalled.abandon:
            if self._running.pop(slice_, None) is None:
                return None
            self._loop.call(self._replace)
        note = _BLOCKS if blocker is task else ""
        handler = slice_.call.handler
        failure = self._caller.describe_stall(where, stalled.seconds, handler, note)
        if stalled.end:
            self._loop.call(self._end, (slice_,), failure)
        return failure

    def interrupt(self, slices: Sequence[Slice]) -> bool:
        """Cancel the calls of these slices, whose partitions are given up."""
        self._loop.call(self._end, slices, INTERRUPTED)
        return True

    def event_loop(self) -> LoopSnapshot:
        """Return the event loop's figures so far. Any thread may ask."""
        return LoopSnapshot(self._loop.computed_s, self._loop.late_s)

    def coroutines(self) -> Coroutines:
        """Return the positions of the running calls. Any thread may ask."""
        return {
            (slice_.partition.name, message.offset()): self._where(task)
            for slice_, task in self._running.copy().items()
            if (message := slice_.running()) is not None
        }

    def stop(self, timeout_s: float) -> int:
        """End the loop and its tasks; return 1 if it still runs after ``timeout_s``."""
        return 0 if self._loop.stop(timeout_s) else 1

    def _where(self, task: CallTask) -> Where:
        stack = task_stack(task, task.coroutine)
        if stack and asyncio.current_task(self._loop.loop) is not task:
            return stack
        return handlers_part(sys._current_frames().get(self._loop.thread.ident or 0))

    def _blocker(self) -> object | None:
        """Return the task that blocks the loop, or the loop itself for a plain callback."""
        if not self._loop.is_blocked:
            return None
        return asyncio.current_task(self._loop.loop) or self._loop

    def _report_blocked(self, blocker: object) -> None:
        """Log, once, a handler's task or a callback that blocks the loop; its call is unknown."""
        if self._blocked_at == self._loop.pulse_at:
            return
        self._blocked_at = self._loop.pulse_at
        where = handlers_part(sys._current_frames().get(self._loop.thread.ident or 0))
        stack = "".join(traceback.StackSummary.extract(iter(where)).format())
        name = f"the task {blocker.get_name()}" if isinstance(blocker, asyncio.Task) else "a call"
        _log.warning(
            "%s: %s blocks the event loop: until it returns nothing else runs in this worker;"
            " it is at:\n%s",
            self._worker,
            name,
            stack.rstrip(),
            extra={"event": LogEvent.LOOP_BLOCKED},
        )

    # ---- on the loop

    def _rouse(self) -> None:
        self._rousing = False
        self._let_begin()

    def _let_begin(self) -> None:
        """Start a slot for each waiting slice while slots are free."""
        for _ in range(min(self._free, len(self._waiting))):
            self._free -= 1
            self._wake()

    def _wake(self) -> None:
        """Wake a task that has no slot, or create one."""
        while self._idle:
            _, woken = self._idle.pop()
            if not woken.done():
                woken.set_result(None)
                return
        # Its context is empty, regardless of the caller's.
        task = CallTask(self._work(), loop=self._loop.loop, context=Context())
        task.worker = self._worker

    def _resize(self, more: int) -> None:
        self._free += more
        self._let_begin()

    def _replace(self) -> None:
        """Pass the slot of a task that no longer needs it to another one."""
        self._free += 1
        self._let_begin()

    def _end(self, slices: Iterable[Slice], ending: Failure | Interrupted) -> None:
        for slice_ in slices:
            task = self._running.get(slice_)
            if task is not None:
                task.ending = task.ending or ending
                slice_.call.cancelled = True
                task.cancel()

    async def _work(self) -> None:
        """Hold a slot while slices wait, then wait for the next one."""
        task = asyncio.current_task()
        assert isinstance(task, CallTask)
        waiting, running = self._waiting, self._running
        has_slot = True
        try:
            while True:
                while waiting and self._free >= 0:
                    slice_ = waiting.popleft()
                    self._begin(slice_, task)
                    call = call_batch if slice_.is_batch else call_each
                    is_usable = await call(slice_, self._caller, task)
                    has_slot = running.pop(slice_, None) is not None
                    self._end_slice(slice_, task, is_mine=has_slot)
                    if not is_usable:
                        self._check_leftovers()
                    if not (has_slot and is_usable):
                        return
                    if self._last is task:
                        # No other task has begun, so perhaps no call has waited. Let others run.
                        await asyncio.sleep(0)
                has_slot = False
                await self._wait(task)
                has_slot = True
        except asyncio.CancelledError:
            """Something cancelled every task; a new task takes over."""
        finally:
            if has_slot:
                self._replace()

    def _check_leftovers(self) -> None:
        """Isolate calls from now on, which costs more, if one left something in its context."""
        if leaves_traces() and not self._is_apart:
            self._is_apart = True
            self._caller = evolve(self._caller, handler=apart(self._caller.handler))

    def _begin(self, slice_: Slice, task: CallTask) -> None:
        slice_.thread = self._loop.thread.ident or 0
        slice_.call.state = self._state
        slice_.call.whose = self._caller.whose
        slice_.started = slice_.started or perf_counter()
        self._running[slice_] = self._last = task

    def _end_slice(self, slice_: Slice, task: CallTask, *, is_mine: bool) -> None:
        """Report a slice, unless another slot must continue it."""
        task.record = task.coroutine = None
        current_slot.set(None)
        if is_mine and length_hint(slice_.unclaimed):
            self._waiting.appendleft(slice_)
        else:
            slice_.elapsed = perf_counter() - slice_.started
            self._completions.put(slice_)

    async def _wait(self, task: CallTask) -> None:
        """Release the slot and wait for another one."""
        self._free += 1
        if self._waiting and self._free > 0:
            # The slice came before the slot was free, so it woke no task.
            self._free -= 1
            return
        woken = self._loop.loop.create_future()
        self._idle.append((task, woken))
        try:
            await woken
        except asyncio.CancelledError:
            if not woken.cancelled():
                self._replace()
            elif (task, woken) in self._idle:
                self._idle.remove((task, woken))
            raise


ASYNCIO: Final = PoolKind(
    name="asyncio",
    make=lambda parts: partial(AsyncPool, loop=parts.loop),
    runs_functions=False,
    coroutines_on="asyncio",
    interruptible=True,
    # Covers a call that waits, two functions deep and with a timeout (measured: 9.2 kB).
    slot_bytes=10_000,
)
