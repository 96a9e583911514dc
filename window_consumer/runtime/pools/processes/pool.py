"""Slots as processes: which child gets which slice, and what happens when a process dies.

The engine sees the same slices as with threads. A slice goes to an idle child, or else is queued
behind the work of another; it moves to a different child if that takes long. When a child dies, its
current record fails, its finished records count, and the rest goes to other children.

Several threads of the parent use a pool: the poll thread, and two for each child. ``news`` is the
only lock. While holding it, a thread sends, receives and awaits nothing, except notifications of
``news`` and, for a quarter of a second, the stacks of children.
"""

from __future__ import annotations

import logging
import pickle
import threading
import traceback
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import count
from queue import SimpleQueue
from time import perf_counter
from typing import Any, ClassVar, Final

from window_consumer.engine.guards.stalls import Ending, Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import (
    ProcessDiedError,
    StartStoppedError,
    WindowConsumerError,
    WorkerStoppedError,
)
from window_consumer.model.fault import Failure, Fault, fingerprint
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.coroutine_calls import INTERRUPTED
from window_consumer.runtime.error_report import class_name, handlers_lines
from window_consumer.runtime.figures.stack_dump import ChildPicture
from window_consumer.runtime.pools.pool import MakePool, PoolKind, PoolParts
from window_consumer.runtime.pools.processes.child_handle import (
    DEFAULT_RULES,
    ChildHandle,
    ProcessPoolRules,
)
from window_consumer.runtime.pools.processes.child_process import STACK_S, Child
from window_consumer.runtime.pools.processes.remote_batch import RemoteBatch
from window_consumer.runtime.pools.processes.remote_slice import RemoteSlice, WatchedCall

LEAVE_S: Final = 2.0
"""The least time that children get to leave their lifespan."""

_DEATH_S: Final = 5.0
"""How long to wait for a killed process. It ends within milliseconds, unless the kernel holds
it."""


class ProcessPool:
    """Child processes, at most ``slots``. Owner: poll thread, except ``start`` and ``stop``."""

    ending: ClassVar[Ending] = "killed"

    def __init__(  # noqa: PLR0913 - what every pool gets, and what its children are made of
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
        self.equip = equip
        """A pickled ``child_main.Equip``."""
        self.rules = rules
        self.news = threading.Condition()
        """Guards all state of the children; notified when it changes."""
        self.stopping = threading.Event()
        self.started = threading.Event()
        """Set once all slots have had a ready child."""
        self._worker = worker
        self._caller = caller
        self._completions = completions
        self._logger = logger
        self.next_serial = count(1).__next__
        self._waiting: deque[RemoteSlice] = deque()
        self._slots = [ChildHandle(f"wc-{worker}-slot-{n}", self) for n in range(slots)]
        self._used = self._slots
        """The slots that may take slices. The others rest or have no child."""
        self._unready = set(self._used)
        self._failure: WindowConsumerError | None = None

    # ---- the pool

    def start(self) -> None:
        """Start the children and wait until all are ready.

        Raises UsageError where they cannot load the application, LifespanError where its lifespan
        fails, and RunError where one dies. All children have ended then.
        """
        began = perf_counter()
        with self.news:
            for slot in self._used:
                slot.engage()
        while not self._have_begun(self.rules.awaited_s):
            self._logger.info(
                "%s: %d of %d child processes have not begun after %.0f s: they import the"
                " application and enter its lifespan",
                self._worker,
                len(self._unready),
                len(self._used),
                perf_counter() - began,
                extra={"event": LogEvent.CHILDREN_AWAITED},
            )
        if self._failure is not None:
            self.stop(0.0)
            raise self._failure
        self.started.set()

    def _have_begun(self, timeout_s: float) -> bool:
        """Wait until all children are ready or one cannot be; return False on a timeout."""
        with self.news:
            return self.news.wait_for(
                lambda: not self._unready or self._failure is not None, timeout_s
            )

    def stop_starting(self) -> None:
        """Let ``start`` raise StartStoppedError if it still waits. Any thread may call it."""
        with self.news:
            if not self.started.is_set() and self._failure is None:
                self._failure = StartStoppedError("stopped while child processes were starting")
                self.news.notify_all()

    @property
    def is_ready(self) -> bool:
        """Whether all children in use can work."""
        return all(slot.child is not None for slot in self._used)

    def use(self, slots: int) -> None:
        """Limit the number of children that take slices from now on; running calls may end.

        Starts missing children. Surplus ones rest, and end after ``rules.rest_s``.
        """
        now = perf_counter()
        with self.news:
            self._used = self._slots[:slots]
            if not self.started.is_set():
                self._unready = set(self._used)
                return
            if self.stopping.is_set():
                return
            for slot in self._used:
                slot.engage()
            for slot in self._slots[slots:]:
                ready = slot.rest(now)
                if ready is not None:
                    self.put_back(ready)
            self.deal()

    def submit(self, slice_: Slice) -> None:
        """Queue a slice for an idle child."""
        slice_.call = WatchedCall(slice_.call)
        kind = RemoteBatch if slice_.is_batch else RemoteSlice
        remote_slice = kind(slice_, self.news, self._emptied)
        slice_.claims = remote_slice
        with self.news:
            self._waiting.append(remote_slice)
            self.deal()

    def inspect(self, stalled: Stalled) -> Failure | None:
        """Return where a call stands that does not return; None where it has returned by now.

        The process of a call to end or abandon is killed, and its slice comes back at once.
        """
        remote_slice = stalled.slice_.claims
        assert isinstance(remote_slice, RemoteSlice)
        with self.news:
            slot = self._slot_of(remote_slice)
            if slot is None or slot.child is None or not remote_slice.is_on(stalled.offset):
                return None
            where = handlers_lines(slot.child.frames())
            note = "" if where else ", and its process does not report its stack"
            handler = slot.handler_of(remote_slice)
            failure = self._caller.describe_stall(where, stalled.seconds, handler, note)
            if stalled.end or stalled.abandon:
                remote_slice.ending = failure
                slot.child.kill()
        return failure

    def children(self) -> Sequence[ChildPicture]:
        """Return what the children do at this moment. Any thread may ask."""
        with self.news:
            asked = {slot for slot in self._slots if slot.ask_for_frames()}
            deadline = perf_counter() + STACK_S
            pictures = [slot.picture(deadline if slot in asked else None) for slot in self._slots]
        return [picture for picture in pictures if picture is not None]

    def interrupt(self, slices: Sequence[Slice]) -> bool:
        """Kill the processes that run these slices, whose partitions are given up."""
        with self.news:
            for remote_slice in [
                each.claims for each in slices if isinstance(each.claims, RemoteSlice)
            ]:
                slot = self._slot_of(remote_slice)
                if slot is not None and slot.child is not None:
                    remote_slice.ending = INTERRUPTED
                    slot.child.kill()
        return True

    def _slot_of(self, remote_slice: RemoteSlice) -> ChildHandle | None:
        """Return the slot whose child has a remote slice; None if it waits or is over."""
        return next(
            (
                slot
                for slot in self._slots
                if slot.remote_slices.get(remote_slice.serial) is remote_slice
            ),
            None,
        )

    def stop(self, timeout_s: float) -> int:
        """Let the children end after their present calls and kill those that do not; return 0."""
        with self.news:
            self.stopping.set()
            for slot in self._slots:
                slot.end()
            busy = [slot for slot in self._slots if slot.remote_slices]
        now = perf_counter()
        for slots, seconds in ((busy, timeout_s), (self._slots, max(timeout_s, LEAVE_S))):
            for slot in slots:
                if not slot.join(max(0.0, now + seconds - perf_counter())):
                    slot.kill()
                    slot.join(_DEATH_S)
        return 0

    # ---- for slots, which hold the lock

    def deal(self) -> None:
        """Deal the waiting slices; where none waits, slices that are queued behind others."""
        while self._waiting:
            slot = self._next_slot()
            if slot is None:
                return
            slot.take(self._waiting.popleft())
        for idle in [slot for slot in self._used if slot.is_idle]:
            for busy in self._slots:
                remote_slice = busy.lies_ready
                if remote_slice is None or not busy.give(remote_slice):
                    continue
                if remote_slice.messages:
                    idle.take(remote_slice)
                    break
                self.put_back(remote_slice)  # all of it was taken back meanwhile

    def _next_slot(self) -> ChildHandle | None:
        idle = next((slot for slot in self._used if slot.is_idle), None)
        return idle or next((slot for slot in self._used if slot.has_room), None)

    def completed(self, remote_slice: RemoteSlice) -> None:
        """Report a slice."""
        self._completions.put(remote_slice.part())

    def put_back(self, remote_slice: RemoteSlice) -> None:
        """Put a remote slice that was not begun back at the front of the queue."""
        if remote_slice.messages:
            self._waiting.appendleft(remote_slice)
        else:
            remote_slice.waits = False
            self.completed(remote_slice)

    def _emptied(self, remote_slice: RemoteSlice) -> None:
        """Report a slice whose records were all taken back while it waited."""
        remote_slice.waits = False
        self._waiting.remove(remote_slice)
        self.completed(remote_slice)

    def has_begun(self, slot: ChildHandle) -> None:
        """Record that a slot has a ready child."""
        self._unready.discard(slot)
        self.news.notify_all()

    def gave_up(self, slot: ChildHandle) -> None:
        """Stop the worker, or its start, because a slot has no child and will not get one."""
        failure = slot.failure
        with self.news:
            if not self.started.is_set():
                self._failure = self._failure or failure
                self.news.notify_all()
                return
        self.stop_worker(
            WorkerStoppedError(f"the process {slot.name} cannot be replaced: {failure}")
        )

    def stop_worker(self, error: WorkerStoppedError) -> None:
        """Report why the worker must stop. Any thread may call it."""
        self._completions.put(error)

    def death_of(self, slot: ChildHandle, end: str, handler: str) -> Failure:
        """Return the failure of the record that a child was handling when it died.

        ``handler`` is empty where it is the only one, or none had been chosen.
        """
        where = f", in the handler {handler}" if handler else ""
        text = f"the process {slot.name} {end} while it was on this record{where}"
        error = ProcessDiedError(text)
        name = class_name(type(error))
        digest = end + where  # deaths of the same kind are equal
        return Failure(error, Fault(name, str(error), "", fingerprint(name, digest)), handler)

    def log_died(self, slot: ChildHandle, child: Child, end: str, *, killed: bool) -> None:
        """Log that a child has died and is replaced."""
        why = "as its call did not return" if killed else "by itself"
        self._logger.warning(
            "%s: the process %s (%d) %s, %s; it is %s",
            self._worker,
            slot.name,
            child.process.pid,
            end,
            why,
            "not needed for now" if slot.rests else "replaced",
            extra={"event": LogEvent.CHILD_DIED},
        )

    def log_garbled(self, slot: ChildHandle, child: Child, error: Exception) -> None:
        """Log that a child sent an unreadable message."""
        self._logger.error(
            "%s: the process %s (%d) said what is no message; it is killed\n%s",
            self._worker,
            slot.name,
            child.process.pid,
            "".join(traceback.format_exception(error)),
            extra={"event": LogEvent.CHILD_GARBLED},  # the formatted text keeps no files open
        )

    def log_not_begun(self, slot: ChildHandle, wait_s: float, times: int, most: int) -> None:
        """Log that a child could not begin and is retried."""
        self._logger.warning(
            "%s: no process could replace %s, failure %d of %d, next attempt in %.1f s: %s",
            self._worker,
            slot.name,
            times,
            most,
            wait_s,
            slot.failure,
            extra={"event": LogEvent.CHILD_REFUSED},
        )

    def log_killed(self, slot: ChildHandle, seconds: float) -> None:
        """Log that an unneeded child did not end."""
        self._logger.warning(
            "%s: the process %s is not needed, and did not leave its lifespan within %g s: it is"
            " killed",
            self._worker,
            slot.name,
            seconds,
            extra={"event": LogEvent.CHILD_KILLED},
        )


def _make(parts: PoolParts) -> MakePool:
    return partial(ProcessPool, equip=pickle.dumps(parts.equip), logger=parts.logger)


PROCESSES: Final = PoolKind(
    name="processes",
    make=_make,
    interruptible=True,
    has_children=True,
    computes_in_parallel=True,
    # More than any machine can use.
    max_slots=256,
    # A child process with an application that loads nothing else (measured: 38 MiB resident).
    slot_bytes=40 * 2**20,
)
