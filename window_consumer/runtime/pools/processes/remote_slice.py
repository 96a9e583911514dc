"""A slice on its way to a child process and back, as its parent sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition
from typing import Final, NamedTuple

from window_consumer.engine.scheduling.slices import Deviations, RecordsReturned, Slice
from window_consumer.model.fault import Failure
from window_consumer.model.record import Call, Message
from window_consumer.runtime.calls.coroutine_calls import INTERRUPTED, Interrupted
from window_consumer.runtime.pools.processes.carried_errors import restored
from window_consumer.runtime.pools.processes.child_slice import RecordReport
from window_consumer.runtime.pools.processes.shared_memory import CANCELLED, TOLD, SharedSlot


class Posted(NamedTuple):
    """A remote slice to be sent."""

    serial: int
    shared_slot: int
    slice_: Slice
    messages: Sequence[Message]


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

    It is the slice's ``claims``. ``news``, the pool's lock, guards all of its state.
    """

    def __init__(self, slice_: Slice, news: Condition, emptied: Callable[[RemoteSlice], None]):
        self.serial = 0
        """The child's name for it; new each time that it is sent."""
        self.slice_ = slice_
        self.messages: list[Message] = list(slice_.messages)
        """The records that were not taken back."""
        self.shared_slot: SharedSlot | None = None
        """Its shared slot; None while it waits and once it is over."""
        self.told = 0
        """The number of deviations that the child has reported."""
        self._known = 0
        """The position after the last reported record."""
        self.waits = True
        """Whether no child has it and it is not over."""
        self.ending: Failure | Interrupted | None = None
        """The outcome of the child's current record, for which the child was killed."""
        self._news = news
        self._emptied = emptied

    @property
    def is_halved(self) -> bool:
        """Whether it comes back in halves if its child dies now."""
        return False

    # ---- for the engine, as claims

    def left(self) -> int:
        """Return the number of unclaimed records."""
        shared_slot = self.shared_slot
        if shared_slot is not None:
            # The shared slot may hold another remote slice by now.
            return min(len(self.messages), shared_slot.tokens.value)
        return len(self.messages) if self.waits else 0

    def take_back(self) -> list[Message]:
        """Take back all unclaimed records.

        Returns once the outcomes of all claimed records but the last are known.
        """
        with self._news:
            if self.shared_slot is not None:
                taken = self._cut(self.shared_slot.take_all())
                told = self.shared_slot.words[TOLD]
                self._news.wait_for(lambda: self.told >= told or self.shared_slot is None)
                return taken
            if not self.waits:
                return []
            taken = self._cut(len(self.messages))
            self._emptied(self)
            return taken

    # ---- for the pool, which holds the lock

    def go_to(self, shared_slot: SharedSlot, serial: int) -> None:
        """Prepare it for a child."""
        # Load first: readers without the lock take an empty shared slot to mean that all is
        # claimed.
        shared_slot.load(1 if self.slice_.is_batch else len(self.messages))
        self.shared_slot, self.serial, self.waits = shared_slot, serial, False
        self.told = self._known = 0
        call = self.slice_.call
        if isinstance(call, WatchedCall):
            call.shared_slot = shared_slot
            if call.cancelled:
                call.cancelled = True

    def take_away(self) -> bool:
        """Take it from a child that has not begun it; return False where it has."""
        assert self.shared_slot is not None
        if not self.shared_slot.take_whole():
            return False
        self.shared_slot.take_all()
        self._leave()
        self.slice_.started = 0.0
        self.waits = True
        return True

    def record(self, told: RecordReport) -> None:
        """Record that a record's handler did not simply return."""
        message, noted = self.messages[told.place], self.slice_.deviate()
        if told.failure is not None:
            noted.failed.append((message, restored(told.failure)))
        elif told.skipped_as is not None:
            noted.skipped.append((message, told.skipped_as))
        elif told.results:
            noted.returned.append(RecordsReturned((message,), told.results, told.handler))
        else:
            noted.held.append(message)
        self._known = told.place + 1
        self.told += 1

    def finish(self) -> None:
        """Record that the child has finished it."""
        self._leave()

    def on_child_exit(self, failure: Failure) -> bool:
        """Settle the slice after its child's death; return False where it had not begun.

        The current record fails, those before it are over, and those behind it go back.
        """
        assert self.shared_slot is not None
        unclaimed = self._cut(self.shared_slot.take_all())
        # The child may have died between reporting a record and counting it as over.
        over = max(self.shared_slot.over.value, self._known)
        self._leave()
        if not self.messages:
            self.messages = unclaimed
            self.slice_.started = 0.0
            self.waits = True
            return False
        noted = self.slice_.deviate()
        if over < len(self.messages):
            message = self.messages[over]
            ending = INTERRUPTED if self._waits_for_another(message) else self.ending or failure
            self._end(message, ending, noted)
        noted.held.extend(unclaimed)
        return True

    def _waits_for_another(self, message: Message) -> bool:
        """Return whether a record is not called because an earlier one of its lane is open."""
        lane_of, noted = self.slice_.lane_of, self.slice_.deviate()
        if lane_of is None or (lane := lane_of(message)) is None:
            return False
        before = [each for each, _ in noted.failed]
        before += [each for returned in noted.returned for each in returned.messages]
        return lane in map(lane_of, before)

    @staticmethod
    def _end(message: Message, ending: Failure | Interrupted, noted: Deviations) -> None:
        if isinstance(ending, Failure):
            noted.failed.append((message, ending))
        else:
            noted.held.append(message)

    def part(self) -> Slice:
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

    def _leave(self) -> None:
        self.shared_slot = None
        if isinstance(self.slice_.call, WatchedCall):
            self.slice_.call.shared_slot = None
