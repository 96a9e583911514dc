"""One slot of a process pool: it keeps a child alive and knows which slices the child has.

A child that keeps dying is replaced after a growing delay, so that it cannot occupy a core.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

from attrs import frozen

from window_consumer.model.errors import LifespanError, RunError, UsageError, WindowConsumerError
from window_consumer.model.record import Message
from window_consumer.runtime.error_report import handlers_lines
from window_consumer.runtime.figures.stack_dump import ChildPicture, ChildState
from window_consumer.runtime.pools.processes.child_batch import BatchReport
from window_consumer.runtime.pools.processes.child_logs import LogLine, log
from window_consumer.runtime.pools.processes.child_main import (
    ChildBroken,
    ChildLoaded,
    Finished,
    Ready,
)
from window_consumer.runtime.pools.processes.child_process import Child, end_in_words
from window_consumer.runtime.pools.processes.child_slice import RecordReport
from window_consumer.runtime.pools.processes.remote_batch import RemoteBatch
from window_consumer.runtime.pools.processes.remote_slice import Posted, RemoteSlice
from window_consumer.runtime.pools.processes.shared_memory import SharedSlot
from window_consumer.runtime.threads import WatchedThread

if TYPE_CHECKING:
    from window_consumer.runtime.pools.processes.pool import ProcessPool


BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 5.0
"""A dead child is replaced after a delay up to this one, which doubles while children live for
less."""


class Replacement:
    """The deaths of one slot's children. Owner: the keeper's thread."""

    def __init__(self, backoff_s: float = BACKOFF_S) -> None:
        self._backoff_s = backoff_s
        self._quick = 0
        """The number of consecutive deaths soon after the start."""

    def wait_s(self, lived_s: float, *, was_killed: bool, is_halving: bool) -> float:
        """Return the delay before replacing a child that lived for ``lived_s``.

        A child that we killed is replaced at once. So is one that died on a batch of several
        records (``is_halving``): the batch comes back in halves, so such deaths never outnumber the
        records, and the record that causes them is found sooner.
        """
        if was_killed or lived_s > MAX_BACKOFF_S:
            self._quick = 0
            return 0.0
        if is_halving:
            return 0.0
        self._quick += 1
        return min(MAX_BACKOFF_S, self._backoff_s * 2.0 ** min(self._quick - 1, 16))


STUCK_S: Final = 0.015
"""A remote slice that has waited this long behind one record goes to another child."""

REST_S: Final = 60.0
"""How long an unneeded child stays. Starting one takes a good part of a second, and a concurrency
limit under trial returns within seconds."""

LEAVE_S: Final = 10.0
"""How long an unneeded child may take to leave its lifespan, and one that closed its pipe to
end."""

MAX_STARTS: Final = 5
"""After this many consecutive children that never became ready, the worker stops: retrying will not
help."""

AWAITED_S: Final = 5.0
"""How often a line reports children that are slow to begin."""


@frozen
class ProcessPoolRules:
    """How long a pool waits for its children, in seconds, and how often it starts them."""

    rest_s: float = REST_S
    leave_s: float = LEAVE_S
    backoff_s: float = BACKOFF_S
    awaited_s: float = AWAITED_S
    max_starts: int = MAX_STARTS


DEFAULT_RULES: Final = ProcessPoolRules()


class ChildHandle:
    """One slot: a thread that keeps a child, reads its messages, and replaces it when it dies.

    The pool's lock guards the child's work.
    """

    def __init__(self, name: str, pool: ProcessPool):
        self.name = name
        self._pool = pool
        self.child: Child | None = None
        """None while no child is ready to work."""
        self._living: Child | None = None
        """The child, even before it is ready to work."""
        self.remote_slices: dict[int, RemoteSlice] = {}
        """The remote slices in the child, in order: the first runs, the others are queued."""
        self._free: list[SharedSlot] = []
        self._shared_slots: dict[int, SharedSlot] = {}
        """Shared slots by serial of their remote slice; busy until the child has finished it."""
        self._seen = (0, 0)
        self.is_stuck = False
        """Whether the child is stuck on a record, so that nothing is queued behind it."""
        self._is_halving = False
        """Whether the last child died on a batch of several records."""
        self.failure: WindowConsumerError | None = None
        """Why no child became ready."""
        self._handlers: Sequence[str] = ()
        """The names of the handlers that its child calls."""
        self._rests_since: float | None = None
        """Since when the slot may not be used; None while it may."""
        self._leaves_since: float | None = None
        """Since when its unneeded child has been ending."""
        self._thread: threading.Thread | None = None
        """The keeper's thread."""

    # ---- for the pool, which holds the lock

    @property
    def is_idle(self) -> bool:
        """Whether it can begin a remote slice at once."""
        return self.child is not None and not self._shared_slots

    @property
    def rests(self) -> bool:
        """Whether the slot may not be used for now."""
        return self._rests_since is not None

    @property
    def has_room(self) -> bool:
        """Whether a remote slice can be queued while it works on another."""
        return self.child is not None and bool(self._free) and not self.is_stuck

    @property
    def lies_ready(self) -> RemoteSlice | None:
        """The queued remote slice that it has not begun, None without one."""
        remote_slices = list(self.remote_slices.values())
        if (
            len(remote_slices) < 2
            or remote_slices[-1].shared_slot is None
            or remote_slices[-1].begun
        ):
            return None
        return remote_slices[-1]

    def handler_of(self, remote_slice: RemoteSlice) -> str:
        """Return the handler that the child calls for its current record.

        Empty where there is only one handler, or none is chosen yet.
        """
        number = 0 if remote_slice.shared_slot is None else remote_slice.shared_slot.handler
        return self._handlers[number - 1] if number else ""

    def ask_for_frames(self) -> bool:
        """Request the stack of a child that runs a handler; return False where it runs none."""
        if self.child is None or self._running() is None:
            return False
        self.child.ask_for_frames()
        return True

    def picture(self, deadline: float | None) -> ChildPicture | None:
        """Return what the child does; None without a child.

        With a ``deadline``, wait until then for the requested stack.
        """
        child, living = self.child, self._living
        if child is None:
            pid = 0 if living is None else living.process.pid
            return ChildPicture(self.name, pid, ChildState.STARTING) if living else None
        running, pid = self._running(), child.process.pid
        if running is None:
            state = ChildState.RESTING if self.rests else ChildState.IDLE
            return ChildPicture(self.name, pid, state)
        remote_slice, message = running
        return ChildPicture(
            self.name,
            pid,
            ChildState.RUNNING,
            (remote_slice.slice_.partition.name, message.offset()),
            self.handler_of(remote_slice),
            () if deadline is None else handlers_lines(child.asked_frames(deadline)),
        )

    def _running(self) -> tuple[RemoteSlice, Message] | None:
        """Return the child's current record and the remote slice that holds it."""
        remote_slice = next(iter(self.remote_slices.values()), None)
        message = None if remote_slice is None else remote_slice.current
        return None if remote_slice is None or message is None else (remote_slice, message)

    def take(self, remote_slice: RemoteSlice) -> None:
        """Send a remote slice to the child."""
        assert self.child is not None
        shared_slot = self._free.pop()
        remote_slice.go_to(shared_slot, self._pool.next_serial())
        if not self._shared_slots:
            remote_slice.slice_.started = perf_counter()
        self._shared_slots[remote_slice.serial] = shared_slot
        self.remote_slices[remote_slice.serial] = remote_slice
        number = self.child.slot_memory.shared_slots.index(shared_slot)
        self.child.posted.put(
            Posted(remote_slice.serial, number, remote_slice.slice_, remote_slice.messages)
        )

    def give(self, remote_slice: RemoteSlice) -> bool:
        """Take back a remote slice that has not begun; return False where it has by now."""
        if not remote_slice.take_away():
            return False
        del self.remote_slices[remote_slice.serial]
        return True

    def engage(self) -> None:
        """Have a child from now on: start a keeper, unless there is one."""
        self._rests_since = None
        if self._thread is None:
            self._thread = WatchedThread(self._keep, f"{self.name}-keeper", self._pool.stop_worker)
            self._thread.start()

    def rest(self, now: float) -> RemoteSlice | None:
        """Take no more work, and end the child once it has been unused for long.

        Returns its queued slice that it had not begun, if there was one.
        """
        if self._thread is None:
            return None
        rules = self._pool.rules
        if self._rests_since is None:
            self._rests_since = now
        if self._leaves_since is not None:
            if now - self._leaves_since > rules.leave_s:
                self._leaves_since = now
                self._pool.log_killed(self, rules.leave_s)
                self.kill()
        elif self.is_idle and now - self._rests_since >= rules.rest_s:
            self._leaves_since = now
            self.end()
            self.child = None
        ready = self.lies_ready
        return ready if ready is not None and self.give(ready) else None

    def join(self, timeout_s: float) -> bool:
        """Wait until the slot has no child and no keeper; return False on a timeout."""
        thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def end(self) -> None:
        """Let the child end after its present work."""
        if self.child is not None:
            self.child.posted.put(None)

    def kill(self) -> None:
        """End the child at once, ready or not."""
        child = self._living
        if child is not None:
            child.kill()

    # ---- the keeper's thread

    def _keep(self) -> None:
        pool = self._pool
        rules = pool.rules
        unready, replacement = 0, Replacement(rules.backoff_s)
        while not pool.stopping.is_set():
            born = perf_counter()
            was_ready, was_killed = self._one_life()
            if pool.stopping.is_set() or self._is_over():
                return
            unready = 0 if was_ready else unready + 1
            wait_s = replacement.wait_s(
                perf_counter() - born, was_killed=was_killed, is_halving=self._is_halving
            )
            if not was_ready and (not pool.started.is_set() or unready >= rules.max_starts):
                pool.gave_up(self)
                return
            if unready:
                pool.log_not_begun(self, wait_s, unready, rules.max_starts)
            pool.stopping.wait(wait_s)

    def _is_over(self) -> bool:
        """Return whether the slot needs no child for now; its keeper then ends."""
        with self._pool.news:
            self._leaves_since = None
            is_over = self._rests_since is not None
            if is_over:
                self._thread = None
            return is_over

    def _one_life(self) -> tuple[bool, bool]:
        """Run one child to its end; return whether it became ready, and whether we killed it."""
        pool = self._pool
        child = self._living = Child(self.name, pool.equip)
        feeder = WatchedThread(
            child.feed, f"{self.name}-feeder", pool.stop_worker, (self._drain_pipe,)
        )
        feeder.start()
        ready, doing = False, "imported the application"
        self.failure = None
        try:
            while True:
                said = child.receive()
                if isinstance(said, Ready):
                    ready = True
                    self._handlers = said.handlers
                    self._begin(child)
                elif isinstance(said, ChildLoaded):
                    doing = "entered the application's lifespan"
                elif isinstance(said, ChildBroken):
                    self.failure = (UsageError if said.is_usage else LifespanError)(said.text)
                else:
                    self._receive(said)
        except EOFError:
            end = end_in_words(child.wait(pool.rules.leave_s))
        except Exception as error:
            # A handler may write to any file. The slot continues, because only it keeps its
            # records.
            pool.log_garbled(self, child, error)
            child.wait(0.0)
            end = "was killed, having said what is no message"
        left = self._leaves_since is not None
        killed = self._on_child_exit(child, end) or left
        if not ready and self.failure is None:
            self.failure = RunError(f"the process {self.name} {end} while it {doing}")
        child.posted.put(None)
        feeder.join()
        self._living = None
        child.close()
        return ready, killed

    def _begin(self, child: Child) -> None:
        pool = self._pool
        with pool.news:
            self.child = child
            self._free = list(child.slot_memory.shared_slots)
            self._shared_slots.clear()
            self.is_stuck = False
            pool.has_begun(self)
            pool.deal()
            if pool.stopping.is_set():
                self.end()

    def _receive(self, said: object) -> None:
        pool = self._pool
        if isinstance(said, Finished):
            with pool.news:
                self._free.append(self._shared_slots.pop(said.serial))
                self.is_stuck = False
                remote_slice = self.remote_slices.pop(said.serial, None)
                following = next(iter(self.remote_slices.values()), None)
                if following is not None:
                    following.slice_.started = perf_counter()
                if remote_slice is not None:
                    remote_slice.finish()
                    remote_slice.slice_.elapsed = said.elapsed_s
                    pool.news.notify_all()
                    pool.completed(remote_slice)
                pool.deal()
        elif isinstance(said, RecordReport):
            with pool.news:
                remote_slice = self.remote_slices.get(said.serial)
                if remote_slice is not None:
                    remote_slice.record(said)
                    pool.news.notify_all()
        elif isinstance(said, BatchReport):
            with pool.news:
                remote_slice = self.remote_slices.get(said.serial)
                if isinstance(remote_slice, RemoteBatch):
                    remote_slice.record_batch(said)
        elif isinstance(said, LogLine):
            log(said)

    def _on_child_exit(self, child: Child, end: str) -> bool:
        """Settle the dead child's slices; return whether we had killed it."""
        pool = self._pool
        with pool.news:
            was_serving, self.child = self.child is not None, None
            remote_slices = list(self.remote_slices.values())
            self.remote_slices.clear()
            self._is_halving = any(remote_slice.is_halved for remote_slice in remote_slices)
            killed = any(remote_slice.ending is not None for remote_slice in remote_slices)
            for remote_slice in reversed(remote_slices):
                remote_slice.slice_.elapsed = max(0.0, perf_counter() - remote_slice.slice_.started)
                if remote_slice.on_child_exit(
                    pool.death_of(self, end, self.handler_of(remote_slice))
                ):
                    pool.completed(remote_slice)
                else:
                    pool.put_back(remote_slice)
            self._free.clear()
            self._shared_slots.clear()
            pool.news.notify_all()
            if was_serving and not pool.stopping.is_set():
                pool.log_died(self, child, end, killed=killed)
            pool.deal()
        return killed

    # ---- the feeder's thread

    def _drain_pipe(self) -> float | None:
        """Take queued slices back where the child makes no progress; return when to check again."""
        with self._pool.news:
            remote_slice = self.lies_ready
            if remote_slice is None or self.child is None:
                return None
            (serial, first), *_ = self.remote_slices.items()
            seen, self._seen = self._seen, (serial, first.begun)
            if seen == self._seen and self.give(remote_slice):
                self.is_stuck = True
                self._pool.put_back(remote_slice)
                self._pool.deal()
                return None
        return STUCK_S
