"""One slot of a process pool: its child, and the child's slices.

A child has two places for slices: it works on one while the next one waits. Nothing here does I/O,
so tests drive it without processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from attrs import frozen

from window_consumer.model.errors import ProcessDiedError, WindowConsumerError
from window_consumer.model.fault import Failure, Fault, fingerprint
from window_consumer.model.record import Message
from window_consumer.runtime.error_report import class_name
from window_consumer.runtime.pools.processes.child_actions import Post
from window_consumer.runtime.pools.processes.remote_slice import RemoteSlice
from window_consumer.runtime.pools.processes.shared_memory import SharedSlot

BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 5.0
"""A dead child is replaced after a delay up to this one, which doubles while children live for
less."""

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

STUCK_S: Final = 0.015
"""A remote slice that has waited this long behind one record goes to another child."""


@frozen
class ProcessPoolRules:
    """How long a pool waits for its children, in seconds, and how often it starts them."""

    rest_s: float = REST_S
    leave_s: float = LEAVE_S
    backoff_s: float = BACKOFF_S
    awaited_s: float = AWAITED_S
    max_starts: int = MAX_STARTS


class SlotState(Enum):
    """Whether a slot has a child."""

    EMPTY = auto()
    STARTING = auto()
    """Its child imports the application and enters the lifespan, perhaps after a delay."""
    READY = auto()
    LEAVING = auto()
    """Its child ends after its present work."""
    FAILED = auto()
    """Its children do not become ready; it gets no other one."""


_NEXT: Final = {
    SlotState.EMPTY: {SlotState.STARTING, SlotState.FAILED},
    SlotState.STARTING: {SlotState.READY, SlotState.LEAVING, SlotState.EMPTY, SlotState.FAILED},
    SlotState.READY: {SlotState.LEAVING, SlotState.EMPTY, SlotState.FAILED},
    SlotState.LEAVING: {SlotState.EMPTY, SlotState.FAILED},
    SlotState.FAILED: set[SlotState](),
}


class Replacement:
    """The deaths of one slot's children."""

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


class ChildSlot:
    """A slot, its child and the child's slices. Owner: the table of children."""

    def __init__(self, number: int, name: str, backoff_s: float):
        self.number = number
        self.name = name
        self.state = SlotState.EMPTY
        self.pid = 0
        self.replacement = Replacement(backoff_s)
        self.failed_starts = 0
        """The number of consecutive children that did not become ready."""
        self.failure: WindowConsumerError | None = None
        """Why the last child did not become ready."""
        self.has_begun = False
        """Whether one of its children has become ready."""
        self.rests_since: float | None = None
        """Since when the slot may not be used; None while it may."""
        self.leaves_since: float | None = None
        """Since when its unneeded child has been ending."""
        self.spawned_at = 0.0
        self.step = ""
        """The current step of a child that is not ready yet; empty afterwards."""
        self.remote_slices: dict[int, RemoteSlice] = {}
        """The remote slices in the child, in order: the first runs, the others are queued."""
        self._handlers: Sequence[str] = ()
        """The names of the handlers that its child calls."""
        self._shared_slots: Sequence[SharedSlot] = ()
        self._free: list[int] = []
        self._busy: dict[int, int] = {}
        """Shared slots by serial of their remote slice; busy until the child has finished it."""
        self._is_stuck = False
        """Whether the child is stuck on a record, so that nothing is queued behind it."""
        self._progress = (0, 0)
        """The serial of the first remote slice, and how many of its records have begun."""
        self._progress_at = 0.0

    def become(self, state: SlotState) -> None:
        """Change the state; raise ValueError, and change nothing, if that is impossible."""
        if state not in _NEXT[self.state]:
            raise ValueError(f"{self.name} is {self.state.name} and cannot become {state.name}")
        self.state = state

    @property
    def has_child(self) -> bool:
        """Whether it has a child, or is about to have one."""
        return self.state not in {SlotState.EMPTY, SlotState.FAILED}

    @property
    def is_idle(self) -> bool:
        """Whether it can begin a remote slice at once."""
        return self.state is SlotState.READY and not self._busy

    @property
    def has_room(self) -> bool:
        """Whether a remote slice can be queued while it works on another."""
        return self.state is SlotState.READY and bool(self._free) and not self._is_stuck

    @property
    def rests(self) -> bool:
        """Whether the slot may not be used for now."""
        return self.rests_since is not None

    @property
    def queued(self) -> RemoteSlice | None:
        """The queued remote slice that the child has not begun, None without one."""
        if len(self.remote_slices) < 2:
            return None
        last = next(reversed(self.remote_slices.values()))
        return None if last.shared_slot is None or last.begun else last

    @property
    def running(self) -> tuple[RemoteSlice, Message] | None:
        """The child's current record and the remote slice that holds it."""
        remote_slice = next(iter(self.remote_slices.values()), None)
        message = None if remote_slice is None else remote_slice.current
        return None if remote_slice is None or message is None else (remote_slice, message)

    def handler_of(self, remote_slice: RemoteSlice) -> str:
        """Return the handler that the child calls for its current record.

        Empty if there is only one handler, or none is chosen yet.
        """
        number = 0 if remote_slice.shared_slot is None else remote_slice.shared_slot.handler
        return self._handlers[number - 1] if number else ""

    def death(self, remote_slice: RemoteSlice, end: str) -> Failure:
        """Return the failure of the record that the child was handling when it died."""
        handler = self.handler_of(remote_slice)
        where = f", in the handler {handler}" if handler else ""
        error = ProcessDiedError(
            f"the process {self.name} {end} while it was on this record{where}"
        )
        digest = end + where  # deaths of the same kind are equal
        kind = class_name(type(error))
        return Failure(error, Fault(kind, str(error), "", fingerprint(kind, digest)), handler)

    def on_spawned(self, pid: int, shared_slots: Sequence[SharedSlot], now: float) -> None:
        """Record that a process was started."""
        self.pid, self.spawned_at = pid, now
        self.step, self.failure = "imported the application", None
        self._shared_slots = shared_slots

    def on_ready(self, handlers: Sequence[str]) -> None:
        """Record that the child can work; a child that was asked to leave now leaves."""
        if self.state is not SlotState.LEAVING:
            self.become(SlotState.READY)
            self._free = list(range(len(self._shared_slots)))
        self.step, self._handlers, self.has_begun = "", handlers, True

    def take(self, remote_slice: RemoteSlice, serial: int, now: float) -> Post:
        """Give a remote slice to the child."""
        if not self._busy:
            remote_slice.slice_.started = now
        number = self._free.pop()
        remote_slice.enter(self._shared_slots[number], serial)
        self._busy[serial] = number
        self.remote_slices[serial] = remote_slice
        return Post(self.number, serial, number, remote_slice.slice_, remote_slice.messages)

    def withdraw(self) -> RemoteSlice | None:
        """Take back the queued remote slice; None without one, or if it has begun."""
        queued = self.queued
        if queued is None or not queued.withdraw():
            return None
        del self.remote_slices[queued.serial]
        return queued

    def finish(self, serial: int, now: float) -> RemoteSlice | None:
        """Record that the child has finished a remote slice; None if it was withdrawn."""
        self._free.append(self._busy.pop(serial))
        self._is_stuck = False
        remote_slice = self.remote_slices.pop(serial, None)
        following = next(iter(self.remote_slices.values()), None)
        if following is not None:
            following.slice_.started = now
        if remote_slice is not None:
            remote_slice.leave()
        return remote_slice

    def withdraw_if_stuck(self, now: float) -> tuple[RemoteSlice | None, float | None]:
        """Withdraw the queued remote slice if the child makes no progress.

        Returns it, and in how many seconds to check again.
        """
        if self.queued is None:
            return None, None
        (serial, first), *_ = self.remote_slices.items()
        progress = serial, first.begun
        if progress != self._progress:
            self._progress, self._progress_at = progress, now
        left_s = self._progress_at + STUCK_S - now
        if left_s > 0.0:
            return None, left_s
        withdrawn = self.withdraw()
        self._is_stuck = withdrawn is not None
        return withdrawn, None if self._is_stuck else STUCK_S

    def clear(self) -> None:
        """Remove the state of a child that has ended."""
        self.remote_slices.clear()
        self._busy.clear()
        self._free.clear()
        self._shared_slots = ()
        self._is_stuck = False
