"""Which child gets which slice: like ``child_table``, without I/O, threads, clock and lock.

A slice goes to an idle child, or else is queued behind the work of another; it moves to a different
child if that takes long. When a child dies, its current record fails, its finished records count,
and the rest goes to other children.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

from window_consumer.model.record import Message
from window_consumer.runtime.pools.processes.child_actions import Action, Complete
from window_consumer.runtime.pools.processes.child_slot import ChildSlot
from window_consumer.runtime.pools.processes.remote_slice import RemoteSlice


class RemoteQueue:
    """The slices that wait for a child of these slots. Owner: the pool's lock."""

    def __init__(self, slots: Sequence[ChildSlot], act: Callable[[Action], None]):
        self._slots = slots
        self._act = act
        self._waiting: deque[RemoteSlice] = deque()
        self._next_serial = count(1).__next__

    def slot_of(self, remote_slice: RemoteSlice) -> ChildSlot | None:
        """Return the slot whose child has a remote slice; None if it waits or is over."""
        serial = remote_slice.serial
        return next((s for s in self._slots if s.remote_slices.get(serial) is remote_slice), None)

    def append(self, remote_slice: RemoteSlice) -> None:
        """Let a new slice wait behind the others; one whose records were taken back is over."""
        if remote_slice.messages:
            self._waiting.append(remote_slice)
        else:
            self.complete(remote_slice)

    def put_back(self, remote_slice: RemoteSlice) -> None:
        """Put a remote slice that was not begun back at the front of the queue."""
        if remote_slice.messages:
            self._waiting.appendleft(remote_slice)
        else:
            self.complete(remote_slice)

    def take_back(self, remote_slice: RemoteSlice) -> list[Message]:
        """Take back a slice's unclaimed records."""
        messages = remote_slice.take_back()
        if messages and remote_slice.waits:
            self._waiting.remove(remote_slice)
            self.complete(remote_slice)
        return messages

    def complete(self, remote_slice: RemoteSlice) -> None:
        """Report a slice of which no child has anything left."""
        remote_slice.waits = False
        self._act(Complete(remote_slice.detach()))

    def deal(self, used: Sequence[ChildSlot], now: float) -> None:
        """Deal the waiting slices to the slots in use.

        Where none waits, idle children get slices that are queued behind others.
        """
        while self._waiting:
            slot = self._next_slot(used)
            if slot is None:
                return
            self._post(slot, self._waiting.popleft(), now)
        for idle in [slot for slot in used if slot.is_idle]:
            for busy in self._slots:
                remote_slice = busy.withdraw()
                if remote_slice is None:
                    continue
                if remote_slice.messages:
                    self._post(idle, remote_slice, now)
                    break
                self.put_back(remote_slice)  # all of its records were taken back meanwhile

    @staticmethod
    def _next_slot(used: Sequence[ChildSlot]) -> ChildSlot | None:
        idle = next((slot for slot in used if slot.is_idle), None)
        return idle or next((slot for slot in used if slot.has_room), None)

    def _post(self, slot: ChildSlot, remote_slice: RemoteSlice, now: float) -> None:
        self._act(slot.take(remote_slice, self._next_serial(), now))
