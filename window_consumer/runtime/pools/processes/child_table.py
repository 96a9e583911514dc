"""The children of a pool: events in, actions out. No I/O, no threads, no clock, no lock.

A dead child is replaced while its slot is needed, after a delay that grows with quick deaths.
During the start, a child that does not become ready ends the start; later, ``max_starts`` of them
in a row end the worker. ``remote_queue`` says which child gets which slice.

Methods are events; ``take_actions`` returns the actions that they require, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

from window_consumer.model.errors import (
    LifespanError,
    RunError,
    StartStoppedError,
    UsageError,
    WindowConsumerError,
    WorkerStoppedError,
)
from window_consumer.model.fault import Failure
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.calls.coroutine_calls import Interrupted
from window_consumer.runtime.pools.processes.child_actions import (
    Action,
    EndChild,
    KillChild,
    Log,
    StartChild,
    StopWorker,
)
from window_consumer.runtime.pools.processes.child_batch import BatchReport
from window_consumer.runtime.pools.processes.child_main import (
    ChildBroken,
    ChildLoaded,
    Finished,
    Ready,
)
from window_consumer.runtime.pools.processes.child_slice import RecordReport
from window_consumer.runtime.pools.processes.child_slot import (
    ChildSlot,
    ProcessPoolRules,
    SlotState,
)
from window_consumer.runtime.pools.processes.remote_queue import RemoteQueue
from window_consumer.runtime.pools.processes.remote_slice import RemoteSlice
from window_consumer.runtime.pools.processes.shared_memory import SharedSlot


class _Phase(Enum):
    STARTING = auto()
    """Some slots have not had a ready child yet."""
    RUNNING = auto()
    STOPPING = auto()


class ChildTable:
    """The slots of a pool, their children, and the slices that wait. Owner: the pool's lock."""

    def __init__(self, worker: str, slots: int, rules: ProcessPoolRules):
        self.slots = [ChildSlot(n, f"wc-{worker}-slot-{n}", rules.backoff_s) for n in range(slots)]
        self._rules = rules
        self._used = self.slots
        """The slots that may take slices. The others rest or have no child."""
        self._phase = _Phase.STARTING
        self.failure: WindowConsumerError | None = None
        """Why the start failed."""
        self._actions: list[Action] = []
        self._act = self._actions.append
        self.queue = RemoteQueue(self.slots, self._act)

    def take_actions(self) -> list[Action]:
        """Return the required actions, and remove them from the table."""
        actions = self._actions.copy()
        self._actions.clear()
        return actions

    # ---- questions

    @property
    def not_begun(self) -> int:
        """The number of slots in use that have not had a ready child yet."""
        return sum(not slot.has_begun for slot in self._used)

    @property
    def used(self) -> int:
        """The number of slots that may take slices."""
        return len(self._used)

    @property
    def is_ready(self) -> bool:
        """Whether all children in use can work."""
        return all(slot.state is SlotState.READY for slot in self._used)

    # ---- events of the worker

    def start(self) -> None:
        """Start the children in use."""
        for slot in self._used:
            self._engage(slot)

    def stop_starting(self) -> None:
        """Let the start fail with StartStoppedError if it is not over."""
        self._fail_start(StartStoppedError("stopped while child processes were starting"))

    def use(self, slots: int, now: float) -> None:
        """Limit the number of children that take slices from now on; running calls may end.

        Starts missing children. Surplus ones rest, and end after ``rest_s``.
        """
        self._used = self.slots[:slots]
        if self._phase is not _Phase.RUNNING:
            return
        for slot in self._used:
            self._engage(slot)
        for slot in self.slots[slots:]:
            self._rest(slot, now)
        self._deal(now)

    def submit(self, remote_slice: RemoteSlice, now: float) -> None:
        """Queue a slice for an idle child."""
        self.queue.append(remote_slice)
        self._deal(now)

    def kill(self, remote_slice: RemoteSlice, ending: Failure | Interrupted) -> None:
        """Kill the child that runs a slice, whose current record ends like this."""
        slot = self.queue.slot_of(remote_slice)
        if slot is not None:
            remote_slice.ending = ending
            self._act(KillChild(slot.number))

    def kill_child(self, number: int) -> None:
        """Kill the child of a slot, if there is one."""
        if self.slots[number].has_child:
            self._act(KillChild(number))

    def stop(self) -> None:
        """Let all children end after their present work."""
        self._phase = _Phase.STOPPING
        for slot in self.slots:
            if slot.state in {SlotState.STARTING, SlotState.READY}:
                self._end(slot)

    # ---- events of children

    def on_spawned(
        self, number: int, pid: int, shared_slots: Sequence[SharedSlot], now: float
    ) -> None:
        """Record that a slot's process was started."""
        self.slots[number].on_spawned(pid, shared_slots, now)

    def on_message(self, number: int, message: object, now: float) -> None:
        """Process a message of a slot's child."""
        slot = self.slots[number]
        match message:
            case Finished():
                remote_slice = slot.finish(message.serial, now)
                if remote_slice is not None:
                    remote_slice.slice_.elapsed = message.elapsed_s
                    self.queue.complete(remote_slice)
                self._deal(now)
            case RecordReport() | BatchReport():
                remote_slice = slot.remote_slices.get(message.serial)
                if remote_slice is not None:
                    remote_slice.record(message)
            case ChildLoaded():
                slot.step = "entered the application's lifespan"
            case ChildBroken():
                slot.failure = (UsageError if message.is_usage else LifespanError)(message.text)
            case Ready():
                slot.on_ready(message.handlers)
                if self._phase is _Phase.STARTING and self.failure is None and not self.not_begun:
                    self._phase = _Phase.RUNNING
                self._deal(now)
            case _:
                raise TypeError(f"children do not send {type(message).__name__}")

    def on_tick(self, number: int, now: float) -> float | None:
        """Move slices that are queued behind a slow record.

        Returns in how many seconds the slot needs the next tick; None if it needs none.
        """
        withdrawn, wait_s = self.slots[number].withdraw_if_stuck(now)
        if withdrawn is not None:
            self.queue.put_back(withdrawn)
            self._deal(now)
        return wait_s

    def on_exit(self, number: int, end: str, now: float) -> None:
        """Settle the slices of a child that has ended, and replace it if it is needed.

        ``end`` describes how it ended, such as "was killed by SIGKILL".
        """
        slot = self.slots[number]
        was_serving = slot.state is SlotState.READY
        slot.become(SlotState.EMPTY)
        is_halving = any(each.is_halved for each in slot.remote_slices.values())
        was_killed = any(each.ending is not None for each in slot.remote_slices.values())
        for remote_slice in reversed(list(slot.remote_slices.values())):
            remote_slice.slice_.elapsed = max(0.0, now - remote_slice.slice_.started)
            if remote_slice.on_child_exit(slot.death(remote_slice, end)):
                self.queue.complete(remote_slice)
            else:
                self.queue.put_back(remote_slice)
        slot.clear()
        if was_serving and self._phase is not _Phase.STOPPING:
            why = "because its call did not return" if was_killed else "by itself"
            then = "not needed for now" if slot.rests else "replaced"
            text = "the process %s (%d) %s, %s; it is %s"
            self._log(LogEvent.CHILD_DIED, text, slot.name, slot.pid, end, why, then)
        self._deal(now)
        is_expected = was_killed or slot.leaves_since is not None
        slot.leaves_since = None
        if self._phase is not _Phase.STOPPING and not slot.rests:
            wait_s = slot.replacement.wait_s(
                now - slot.spawned_at, was_killed=is_expected, is_halving=is_halving
            )
            self._replace(slot, end, wait_s)

    def on_lost(self, number: int, error: WorkerStoppedError) -> None:
        """Stop the worker, or its start, because the thread of a slot's child has died."""
        slot = self.slots[number]
        slot.become(SlotState.FAILED)
        for remote_slice in slot.remote_slices.values():
            remote_slice.leave()
        slot.clear()
        self._give_up(error)

    # ---- decisions

    def _engage(self, slot: ChildSlot) -> None:
        """Have a child in this slot from now on."""
        slot.rests_since = None
        if slot.state is SlotState.EMPTY:
            self._start_child(slot, 0.0)

    def _start_child(self, slot: ChildSlot, delay_s: float) -> None:
        slot.become(SlotState.STARTING)
        slot.pid = 0
        self._act(StartChild(slot.number, delay_s))

    def _rest(self, slot: ChildSlot, now: float) -> None:
        """Give a slot no more work, and end its child once it has been unused for long."""
        if not slot.has_child:
            return
        if slot.rests_since is None:
            slot.rests_since = now
        if slot.leaves_since is not None:
            if now - slot.leaves_since > self._rules.leave_s:
                slot.leaves_since = now
                text = "the process %s is not needed, and did not leave within %g s; it is killed"
                self._log(LogEvent.CHILD_KILLED, text, slot.name, self._rules.leave_s)
                self._act(KillChild(slot.number))
        elif slot.is_idle and now - slot.rests_since >= self._rules.rest_s:
            slot.leaves_since = now
            self._end(slot)
        withdrawn = slot.withdraw()
        if withdrawn is not None:
            self.queue.put_back(withdrawn)

    def _end(self, slot: ChildSlot) -> None:
        slot.become(SlotState.LEAVING)
        self._act(EndChild(slot.number))

    def _replace(self, slot: ChildSlot, end: str, wait_s: float) -> None:
        """Start the next child, unless it would be useless."""
        if not slot.step:
            slot.failed_starts = 0
            self._start_child(slot, wait_s)
            return
        slot.failed_starts += 1
        if slot.failure is None:
            slot.failure = RunError(f"the process {slot.name} {end} while it {slot.step}")
        if self._phase is _Phase.STARTING:
            slot.become(SlotState.FAILED)
            self._fail_start(slot.failure)
        elif slot.failed_starts >= self._rules.max_starts:
            slot.become(SlotState.FAILED)
            text = f"the process {slot.name} cannot be replaced: {slot.failure}"
            self._give_up(WorkerStoppedError(text))
        else:
            text = "no process could replace %s, failure %d of %d, next attempt in %.1f s: %s"
            starts, most = slot.failed_starts, self._rules.max_starts
            self._log(LogEvent.CHILD_REFUSED, text, slot.name, starts, most, wait_s, slot.failure)
            self._start_child(slot, wait_s)

    def _give_up(self, error: WorkerStoppedError) -> None:
        if self._phase is _Phase.STARTING:
            self._fail_start(error)
        else:
            self._act(StopWorker(error))

    def _fail_start(self, failure: WindowConsumerError) -> None:
        if self._phase is _Phase.STARTING and self.failure is None:
            self.failure = failure

    def _deal(self, now: float) -> None:
        if self._phase is not _Phase.STOPPING:
            self.queue.deal(self._used, now)

    def _log(self, event: LogEvent, text: str, *args: Any) -> None:
        self._act(Log(event, text, args))
