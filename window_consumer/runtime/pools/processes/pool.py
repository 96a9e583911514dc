"""Slots as processes: a table directs children and their threads.

The engine sees the same slices as with threads. The poll thread and one thread per child call the
pool; the rules are in ``child_table``, whose actions run under ``_changed``, the only lock. While
holding it, a thread does not block, except for notifications of ``_changed`` and, for a quarter of
a second, for the stacks of children.
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Sequence
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any, ClassVar, Final

from window_consumer.engine.guards.stuck_calls import Ending, Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.fault import Failure
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Message
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.coroutine_calls import INTERRUPTED
from window_consumer.runtime.figures.stack_dump import ChildPicture
from window_consumer.runtime.pools.pool import MakePool, PoolKind, PoolParts
from window_consumer.runtime.pools.processes.child_actions import (
    Action,
    Complete,
    EndChild,
    KillChild,
    Log,
    Post,
    StartChild,
    StopWorker,
)
from window_consumer.runtime.pools.processes.child_process import STACK_S
from window_consumer.runtime.pools.processes.child_slot import ChildSlot, ProcessPoolRules
from window_consumer.runtime.pools.processes.child_table import ChildTable
from window_consumer.runtime.pools.processes.child_thread import ChildThread
from window_consumer.runtime.pools.processes.remote_batch import RemoteBatch
from window_consumer.runtime.pools.processes.remote_slice import (
    RemoteClaims,
    RemoteSlice,
    WatchedCall,
)
from window_consumer.runtime.pools.processes.shared_memory import SharedSlot

LEAVE_S: Final = 2.0
"""The least time that children get to leave their lifespan."""

_DEATH_S: Final = 5.0
"""How long to wait for a killed process. It ends within milliseconds, unless the kernel holds
it."""

DEFAULT_RULES: Final = ProcessPoolRules()


class ProcessPool:
    """Child processes, at most ``slots``. Owner: poll thread, except ``start`` and ``stop``."""

    ending: ClassVar[Ending] = "killed"

    def __init__(  # noqa: PLR0913 - the arguments of every pool and of its children
        self,
        worker: str,
        slots: int,
        caller: Caller,
        completions: SimpleQueue[Any],
        state: Any,  # noqa: ARG002 - the children have their own
        *,
        equip: bytes,
        logger: logging.Logger,
        rules: ProcessPoolRules = DEFAULT_RULES,
    ):
        """Take ``equip``, a pickled ``child_main.Equip``."""
        self.slots = slots
        self._worker = worker
        self._caller = caller
        self._completions = completions
        self._equip = equip
        self._logger = logger
        self._rules = rules
        self._changed = threading.Condition()
        """Guards the table and the threads; notified after each event."""
        self._table = ChildTable(worker, slots, rules)
        self._threads: dict[int, ChildThread] = {}
        """The current or last thread of each slot."""

    # ---- the pool

    def start(self) -> None:
        """Start the children and wait until all are ready.

        Raises UsageError if they cannot load the application, LifespanError if its lifespan fails,
        and RunError if one dies. By then all children have ended.
        """
        began = perf_counter()
        with self._changed:
            self._table.start()
            self._carry_out()
        while not self._have_begun(self._rules.awaited_s):
            self._logger.info(
                "%s: %d of %d child processes have not begun after %.0f s: they import the"
                " application and enter its lifespan",
                self._worker,
                self._table.not_begun,
                self._table.used,
                perf_counter() - began,
                extra={"event": LogEvent.CHILDREN_AWAITED},
            )
        if self._table.failure is not None:
            self.stop(0.0)
            raise self._table.failure

    def _have_begun(self, timeout_s: float) -> bool:
        """Wait until all children are ready or one cannot be; return False on a timeout."""
        table = self._table
        with self._changed:
            return self._changed.wait_for(
                lambda: not table.not_begun or table.failure is not None, timeout_s
            )

    def stop_starting(self) -> None:
        """Let ``start`` raise StartStoppedError if it still waits. Any thread may call it."""
        with self._changed:
            self._table.stop_starting()
            self._carry_out()

    @property
    def is_ready(self) -> bool:
        """Whether all children in use can work."""
        return self._table.is_ready

    def use(self, slots: int) -> None:
        """Limit the number of children that take slices from now on; running calls may end.

        Starts missing children. Surplus ones rest, and end after ``rules.rest_s``.
        """
        with self._changed:
            self._table.use(slots, perf_counter())
            self._carry_out()

    def submit(self, slice_: Slice) -> None:
        """Queue a slice for an idle child."""
        slice_.call = WatchedCall(slice_.call)
        remote_slice = RemoteBatch(slice_) if slice_.is_batch else RemoteSlice(slice_)
        slice_.claims = RemoteClaims(remote_slice, self._take_back)
        with self._changed:
            self._table.submit(remote_slice, perf_counter())
            self._carry_out()

    def _take_back(self, remote_slice: RemoteSlice) -> list[Message]:
        with self._changed:
            messages = self._table.queue.take_back(remote_slice)
            self._carry_out()
            self._changed.wait_for(lambda: remote_slice.is_reported)
            return messages

    def inspect(self, stalled: Stalled) -> Failure | None:
        """Return the position of a call that does not return; None if it has returned.

        The process of a call to end or abandon is killed, and its slice comes back at once.
        """
        remote_slice = _remote(stalled.slice_)
        with self._changed:
            slot = self._table.queue.slot_of(remote_slice)
            if slot is None or not remote_slice.is_on(stalled.offset):
                return None
            where = self._threads[slot.number].stack()
            note = "" if where else ", and its process does not report its stack"
            handler = slot.handler_of(remote_slice)
            failure = self._caller.describe_stall(where, stalled.seconds, handler, note)
            if stalled.end or stalled.abandon:
                self._table.kill(remote_slice, failure)
                self._carry_out()
        return failure

    def children(self) -> Sequence[ChildPicture]:
        """Return the current states of the children. Any thread may ask."""
        with self._changed:
            slots = [slot for slot in self._table.slots if slot.has_child and slot.pid]
            threads = self._threads
            asked = {each.number for each in slots if threads[each.number].ask_for_frames(each)}
            deadline = perf_counter() + STACK_S
            return [
                threads[each.number].picture(each, deadline if each.number in asked else None)
                for each in slots
            ]

    def interrupt(self, slices: Sequence[Slice]) -> bool:
        """Kill the processes that run these slices, whose partitions are given up."""
        with self._changed:
            for slice_ in slices:
                self._table.kill(_remote(slice_), INTERRUPTED)
            self._carry_out()
        return True

    def stop(self, timeout_s: float) -> int:
        """Let the children end after their current calls, and kill those that do not; return 0."""
        with self._changed:
            busy = [slot.number for slot in self._table.slots if slot.remote_slices]
            self._table.stop()
            self._carry_out()
        now = perf_counter()
        for slots, seconds in ((busy, timeout_s), (self._threads, max(timeout_s, LEAVE_S))):
            for slot in slots:
                thread = self._threads[slot]
                if not thread.join(max(0.0, now + seconds - perf_counter())):
                    with self._changed:
                        self._table.kill_child(slot)
                        self._carry_out()
                    thread.join(_DEATH_S)
        return 0

    # ---- events of children, on their threads

    def on_spawned(self, slot: int, pid: int, shared_slots: Sequence[SharedSlot]) -> None:
        """Record that a child was started."""
        with self._changed:
            self._table.on_spawned(slot, pid, shared_slots, perf_counter())

    def on_message(self, slot: int, message: object) -> None:
        """Process a child's message."""
        with self._changed:
            self._table.on_message(slot, message, perf_counter())
            self._carry_out()

    def on_tick(self, slot: int) -> float | None:
        """Move slices queued behind a long call; return when to ask again, in seconds."""
        with self._changed:
            timeout_s = self._table.on_tick(slot, perf_counter())
            self._carry_out()
            return timeout_s

    def on_exit(self, slot: int, end: str, trouble: str) -> None:
        """Settle the slices of a child that has ended."""
        with self._changed:
            if trouble:
                self._log_garbled(self._table.slots[slot], trouble)
            self._table.on_exit(slot, end, perf_counter())
            self._carry_out()

    def on_lost(self, slot: int, error: WorkerStoppedError) -> None:
        """Stop the worker: the thread of a child is dying."""
        with self._changed:
            self._table.on_lost(slot, error)
            self._carry_out()

    # ---- actions

    def _carry_out(self) -> None:
        """Carry out the table's actions, and wake up threads that wait for a change."""
        for action in self._table.take_actions():
            self._do(action)
        self._changed.notify_all()

    def _do(self, action: Action) -> None:
        match action:
            case Post():
                self._threads[action.slot].post(action)
            case Complete():
                self._completions.put(action.slice_)
            case StartChild():
                self._start_child(action)
            case EndChild():
                self._threads[action.slot].end()
            case KillChild():
                self._threads[action.slot].kill()
            case StopWorker():
                self._completions.put(action.error)
            case Log():
                event = action.event
                text = f"%s: {action.text}"
                self._logger.warning(text, self._worker, *action.args, extra={"event": event})

    def _start_child(self, action: StartChild) -> None:
        name = self._table.slots[action.slot].name
        thread = ChildThread(action.slot, name, self._equip, self._rules.leave_s, self)
        previous, self._threads[action.slot] = self._threads.get(action.slot), thread
        thread.start(action.delay_s, previous)

    def _log_garbled(self, slot: ChildSlot, trouble: str) -> None:
        self._logger.error(
            "%s: the process %s (%d) sent an unreadable message; it is killed\n%s",
            self._worker,
            slot.name,
            slot.pid,
            trouble,
            extra={"event": LogEvent.CHILD_GARBLED},
        )


def _remote(slice_: Slice) -> RemoteSlice:
    assert isinstance(slice_.claims, RemoteClaims)
    return slice_.claims.remote_slice


def _make(parts: PoolParts) -> MakePool:
    return partial(ProcessPool, equip=pickle.dumps(parts.equip), logger=parts.logger)


PROCESSES: Final = PoolKind(
    name="processes",
    make=_make,
    interruptible=True,
    has_children=True,
    computes_in_parallel=True,
    # more than any machine can use
    max_slots=256,
    # A child process with an application that loads nothing else (measured: 38 MiB resident).
    slot_bytes=40 * 2**20,
)
