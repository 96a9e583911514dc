"""A slice of single records in a child process: each is claimed by a token, and called for.

Outcomes other than a plain return go to the parent before the next record is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from window_consumer.engine.scheduling.lanes import LaneOf
from window_consumer.engine.scheduling.slices import Deviations
from window_consumer.model.produce import Produce
from window_consumer.model.record import Call, Message
from window_consumer.runtime.pools.processes import child_batch as forks
from window_consumer.runtime.pools.processes.carried_errors import CarriedFailure, carried
from window_consumer.runtime.pools.processes.serialization import (
    ReceivedMessage,
    Row,
    SerializedSlice,
    unpacked,
)
from window_consumer.runtime.pools.processes.shared_memory import CANCELLED, TOLD, SharedSlot


class RecordReport(NamedTuple):
    """The child says of a record that its handler did not just return."""

    serial: int
    place: int
    """Among the records of the cargo."""
    failure: CarriedFailure | None
    is_skip: bool
    """It was skipped."""
    results: Sequence[Produce]
    """What its handler returned to be produced. A record with nothing of all this was held back."""
    handler: str
    is_filtered: bool = False
    """It was skipped, for it is for none of the handlers."""


class ReceivedCall(Call):
    """What a parcel's records share; the parent cancels it through the berth.

    It looks there, too, which of several handlers is called.
    """

    __slots__ = ("_handler", "_numbers", "_shared_slot")

    def __init__(
        self,
        attempt: int,
        state: Any,
        before: Callable[[Message], int] | None,
        shared_slot: SharedSlot,
        numbers: Mapping[str, int],
    ):
        self._shared_slot = shared_slot
        self._numbers = numbers
        super().__init__(attempt, state, before)

    @property
    def handler(self) -> str:
        """Which of a worker's several handlers was called last; empty where it has one."""
        return self._handler

    @handler.setter
    def handler(self, name: str) -> None:
        self._handler = name
        if name:
            self._shared_slot.set_handler(self._numbers[name])

    @property
    def cancelled(self) -> bool:
        """True once the result of the call will be ignored."""
        return bool(self._shared_slot.words[CANCELLED])

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        """Leave it to the parent."""


class ReceivedSlice:
    """A slice as the slot's loop sees it in a child. Owner: the main thread."""

    def __init__(
        self,
        serialized: SerializedSlice,
        shared_slot: SharedSlot,
        call: Call,
        say: Callable[[object], None],
    ):
        self.call = call
        self.lane_of: LaneOf | None = serialized.ordering.lane_of if serialized.ordering else None
        self._serial = serialized.serial
        self._shared_slot = shared_slot
        self._say = say
        self._noted: Deviations | None = None
        self._told = 0
        self.unclaimed: Iterator[Message] = self._claim(unpacked(serialized))

    def deviate(self) -> Deviations:
        """Return where the slot notes records whose handler did not just return."""
        if self._noted is None:
            self._noted = Deviations()
        return self._noted

    def _claim(self, rows: Iterator[Row]) -> Iterator[Message]:
        """Yield the records that the parent does not take back."""
        take, add_to_over = self._shared_slot.tokens.take, self._shared_slot.over.add
        came_back = forks.came_back
        make = ReceivedMessage
        for row in rows:
            if not take(False):
                return
            message = make()
            message.row = row
            yield message
            if came_back:
                forks.end()
            if self._noted is not None:
                # Before the next one is claimed: whoever takes the rest back then knows of it.
                self._send_report()
            add_to_over()

    def _send_report(self) -> None:
        place = (
            self._shared_slot.over.value
        )  # those before it are over, and nobody else adds to them
        noted, self._noted = self._noted, None
        assert noted is not None
        failure = carried(noted.failed[0][1]) if noted.failed else None
        results = noted.returned[0].results if noted.returned else ()
        skipped = bool(noted.skipped)
        filtered = bool(noted.filtered)
        told = RecordReport(
            self._serial, place, failure, skipped, results, self.call.handler, filtered
        )
        self._say(told)
        self._told += 1
        self._shared_slot.words[TOLD] = self._told
