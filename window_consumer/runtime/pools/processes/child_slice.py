"""A slice of single records in a child process: a token claims each record for its call.

Outcomes other than a plain return go to the parent before the next record is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from window_consumer.engine.scheduling.lanes import LaneOf
from window_consumer.engine.scheduling.slice_results import Deviations
from window_consumer.model.outcome import Outcome
from window_consumer.model.produce import Produce
from window_consumer.model.record import Call, Message
from window_consumer.runtime.pools.processes import child_batch as forks
from window_consumer.runtime.pools.processes.child_failures import CarriedFailure, carried
from window_consumer.runtime.pools.processes.serialization import (
    ReceivedMessage,
    Row,
    SerializedSlice,
    unpacked,
)
from window_consumer.runtime.pools.processes.shared_memory import CANCELLED, REPORTED, SharedSlot


class RecordReport(NamedTuple):
    """Message: the handler of a record did not simply return."""

    serial: int
    place: int
    """The record's position in the slice."""
    failure: CarriedFailure | None
    skipped_as: Outcome | None
    """How it ended if no handler handled it."""
    results: Sequence[Produce]
    """Results to produce. Without failure, skip and results the record was held back."""
    handler: str


class ReceivedCall(Call):
    """The state shared by a slice's calls; the parent cancels it through the shared slot.

    The shared slot also shows the parent which of several handlers is called.
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
        """The handler that was called last; empty if the worker has only one."""
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
        """Do nothing: only the parent cancels."""


class ReceivedSlice:
    """A slice as the slot's loop sees it in a child. Owner: the main thread."""

    def __init__(
        self,
        serialized: SerializedSlice,
        shared_slot: SharedSlot,
        call: Call,
        send: Callable[[object], None],
    ):
        self.call = call
        self.lane_of: LaneOf | None = serialized.ordering.lane_of if serialized.ordering else None
        self._serial = serialized.serial
        self._shared_slot = shared_slot
        self._send = send
        self._deviations: Deviations | None = None
        self._reported = 0
        self.unclaimed: Iterator[Message] = self._claim(unpacked(serialized))

    def deviate(self) -> Deviations:
        """Return where the slot records calls that did not simply return."""
        if self._deviations is None:
            self._deviations = Deviations()
        return self._deviations

    def _claim(self, rows: Iterator[Row]) -> Iterator[Message]:
        """Yield the records that the parent has not taken back."""
        take, add_to_over = self._shared_slot.tokens.take, self._shared_slot.over.add
        forked = forks.forked
        make = ReceivedMessage
        for row in rows:
            if not take(False):
                return
            message = make()
            message.row = row
            yield message
            if forked:
                forks.end()
            if self._deviations is not None:
                # Report before the next claim, so that a parent that takes back the rest learns of
                # it.
                self._send_report()
            add_to_over()

    def _send_report(self) -> None:
        place = (
            self._shared_slot.over.value
        )  # only this process adds to the count, so the record at this position is the current one
        deviations, self._deviations = self._deviations, None
        assert deviations is not None
        failure = carried(deviations.failed[0][1]) if deviations.failed else None
        results = deviations.returned[0].results if deviations.returned else ()
        skipped_as = deviations.skipped[0][1] if deviations.skipped else None
        report = RecordReport(self._serial, place, failure, skipped_as, results, self.call.handler)
        self._send(report)
        self._reported += 1
        self._shared_slot.words[REPORTED] = self._reported
