"""A slice on its way to a child process and back, as its parent sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from window_consumer.engine.scheduling.slice_results import Deviations, RecordsReturned
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure
from window_consumer.model.record import Call, Message
from window_consumer.runtime.calls.coroutine_calls import INTERRUPTED, Interrupted
from window_consumer.runtime.pools.processes.child_batch import BatchReport
from window_consumer.runtime.pools.processes.child_failures import restored
from window_consumer.runtime.pools.processes.child_slice import RecordReport
from window_consumer.runtime.pools.processes.shared_memory import CANCELLED, REPORTED, SharedSlot


class WatchedCall(Call):
    """A call in another process, which sees its cancellation."""

    __slots__ = ("_cancelled", "shared_slot")

    def __init__(self, call: Call):
        self._cancelled = call.cancelled
        self.shared_slot: SharedSlot | None = None
        for name in _OF_EVERY_CALL:
            setattr(self, name, getattr(call, name))

    @property
    def cancelled(self) -> bool:
        """True once the result of the call will be ignored."""
        return self._cancelled

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        self._cancelled = value
        shared_slot = self.shared_slot
        if shared_slot is not None and value:
            shared_slot.words[CANCELLED] = 1


_OF_EVERY_CALL: Final = [name for name in Call.__slots__ if name != "cancelled"]


class RemoteSlice:
    """A slice whose records a child process claims, or that waits for one.

    It does no I/O: of a child, it knows the shared slot. Owner: the pool's lock, except ``left``.
    """

    def __init__(self, slice_: Slice):
        self.serial = 0
        """The child's name for it; new each time that it is sent."""
        self.slice_ = slice_
        self.messages: list[Message] = list(slice_.messages)
        """The records that were not taken back."""
        self.shared_slot: SharedSlot | None = None
        """Its shared slot; None while it waits and once it is over."""
        self.reported = 0
        """The number of reports from the child that have arrived."""
        self._known = 0
        """The position after the last reported record."""
        self.waits = True
        """Whether no child has it and it is not over."""
        self.ending: Failure | Interrupted | None = None
        """The outcome of the child's current record, for which the child was killed."""

    @property
    def is_halved(self) -> bool:
        """Whether it comes back in halves if its child dies now."""
        return False

    def left(self) -> int:
        """Return the number of unclaimed records. Any thread may call it."""
        shared_slot = self.shared_slot
        if shared_slot is not None:
            # The shared slot may hold another remote slice by now.
            return min(len(self.messages), shared_slot.tokens.value)
        return len(self.messages) if self.waits else 0

    def take_back(self) -> list[Message]:
        """Take back all unclaimed records; a child finds none of them any more."""
        if self.shared_slot is not None:
            return self._cut(self.shared_slot.take_all())
        return self._cut(len(self.messages)) if self.waits else []

    @property
    def is_reported(self) -> bool:
        """Whether all reports that the child has sent have arrived."""
        return self.shared_slot is None or self.reported >= self.shared_slot.words[REPORTED]

    def enter(self, shared_slot: SharedSlot, serial: int) -> None:
        """Prepare it for a child."""
        # Load first: readers without the lock take an empty shared slot to mean that all is
        # claimed.
        shared_slot.load(1 if self.slice_.is_batch else len(self.messages))
        self.shared_slot, self.serial, self.waits = shared_slot, serial, False
        self.reported = self._known = 0
        call = self.slice_.call
        if isinstance(call, WatchedCall):
            call.shared_slot = shared_slot
            if call.cancelled:
                call.cancelled = True

    def withdraw(self) -> bool:
        """Take it from a child that has not begun it; return False if the child has."""
        assert self.shared_slot is not None
        if not self.shared_slot.take_whole():
            return False
        self.shared_slot.take_all()
        self.leave()
        self.slice_.started = 0.0
        self.waits = True
        return True

    def record(self, report: RecordReport | BatchReport) -> None:
        """Record an outcome other than a plain return."""
        assert isinstance(report, RecordReport)
        message, deviations = self.messages[report.place], self.slice_.deviate()
        if report.failure is not None:
            deviations.failed.append((message, restored(report.failure)))
        elif report.skipped_as is not None:
            deviations.skipped.append((message, report.skipped_as))
        elif report.results:
            deviations.returned.append(RecordsReturned((message,), report.results, report.handler))
        else:
            deviations.held.append(message)
        self._known = report.place + 1
        self.reported += 1

    def leave(self) -> None:
        """Give up the shared slot: the child has finished the slice, or will not have it."""
        self.shared_slot = None
        if isinstance(self.slice_.call, WatchedCall):
            self.slice_.call.shared_slot = None

    def on_child_exit(self, failure: Failure) -> bool:
        """Settle the slice after its child's death; return False if it had not begun.

        The current record fails, those before it are over, and those behind it go back.
        """
        assert self.shared_slot is not None
        unclaimed = self._cut(self.shared_slot.take_all())
        # The child may have died between reporting a record and counting it as over.
        over = max(self.shared_slot.over.value, self._known)
        self.leave()
        if not self.messages:
            self.messages = unclaimed
            self.slice_.started = 0.0
            self.waits = True
            return False
        deviations = self.slice_.deviate()
        if over < len(self.messages):
            message = self.messages[over]
            ending = INTERRUPTED if self._waits_for_another(message) else self.ending or failure
            self._end(message, ending, deviations)
        deviations.held.extend(unclaimed)
        return True

    def _waits_for_another(self, message: Message) -> bool:
        """Return whether a record is not called because an earlier one of its lane is open."""
        lane_of, deviations = self.slice_.lane_of, self.slice_.deviate()
        if lane_of is None or (lane := lane_of(message)) is None:
            return False
        before = [each for each, _ in deviations.failed]
        before += [each for returned in deviations.returned for each in returned.messages]
        return lane in map(lane_of, before)

    @staticmethod
    def _end(message: Message, ending: Failure | Interrupted, deviations: Deviations) -> None:
        if isinstance(ending, Failure):
            deviations.failed.append((message, ending))
        else:
            deviations.held.append(message)

    def detach(self) -> Slice:
        """Return the finished slice, and drop every reference between the two.

        The slice and its remote slice form a reference cycle in flight. Left to the garbage
        collector, collecting their short-lived records would take longer than everything else in
        the parent.
        """
        slice_ = self.slice_
        del self.slice_
        self.messages = []
        return slice_

    def is_on(self, offset: int) -> bool:
        """Return whether the child is handling the record of this offset."""
        current = self.current
        return current is not None and bool(current.offset() == offset)

    @property
    def current(self) -> Message | None:
        """The record that its child is handling, None without one."""
        if self.shared_slot is None:
            return None
        begun = self.begun
        return self.messages[begun - 1] if begun > self.shared_slot.over.value else None

    @property
    def begun(self) -> int:
        """The number of records that its child has begun."""
        return 0 if self.shared_slot is None else len(self.messages) - self.shared_slot.tokens.value

    def _cut(self, count: int) -> list[Message]:
        rest = len(self.messages) - count
        cut, self.messages = self.messages[rest:], self.messages[:rest]
        return cut


class RemoteClaims:
    """The claims on a slice's records, some of which a child may have. Owner: any thread."""

    def __init__(
        self, remote_slice: RemoteSlice, take_back: Callable[[RemoteSlice], list[Message]]
    ):
        self.remote_slice = remote_slice
        self._take_back = take_back

    def left(self) -> int:
        """Return the number of unclaimed records."""
        return self.remote_slice.left()

    def take_back(self) -> list[Message]:
        """Take back all unclaimed records.

        Returns once the outcomes of all claimed records but the last are known.
        """
        return self._take_back(self.remote_slice)
