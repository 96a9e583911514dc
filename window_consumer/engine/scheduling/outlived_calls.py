"""Calls that outlived their partition: their lanes stay busy until the calls have really ended.

A call may continue after its partition was revoked or lost, or after its worker was restarted in
the same process. Its result is ignored, but it may still have its effect. If this process gets the
partition again, records of the call's lanes wait for its end. Members in other processes cannot
know about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from attrs import define, evolve, field

from window_consumer.engine.scheduling.lanes import Lane, Lanes
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import TopicPartition


@define(eq=False)
class OutlivedCall:
    """A running call without a partition. It joins the lanes that it keeps busy."""

    slice_: Slice
    home: TopicPartition
    """The source partition of its lanes."""
    offset: int
    """The offset of the record, or of a batch's first one."""
    held: Sequence[Lane]
    is_inherited: bool = False
    """It runs in the pool of this worker's predecessor."""
    lines: dict[Lane, Any] = field(factory=dict, init=False)
    """Always empty: no record waits here for a lane."""
    ready: Collection[Lane] = field(default=(), init=False)
    _group: Lanes | None = field(default=None, init=False)

    def offer(self, lane: Lane) -> None:
        """Never called: no record waits here."""
        raise NotImplementedError

    def withdraw(self, lane: Lane) -> None:
        """Never called: no lane was offered."""
        raise NotImplementedError

    def hold_in(self, lanes: Lanes) -> None:
        """Keep its lanes busy in ``lanes``, which replace those of an earlier assignment."""
        self._group = lanes
        lanes.join(self)
        lanes.acquire(self, self.held)

    def end(self) -> None:
        """Release its lanes."""
        if self._group is not None:
            self._group.leave(self)
            self._group = None


class OutlivedCalls:
    """One worker's ordered calls that have lost their partition. Owner: poll thread."""

    def __init__(self) -> None:
        self._calls: dict[Slice, OutlivedCall] = {}

    def __bool__(self) -> bool:
        """Return whether there are any; that is rare."""
        return bool(self._calls)

    @property
    def calls(self) -> Sequence[OutlivedCall]:
        """All outlived calls; a successor inherits them."""
        return tuple(self._calls.values())

    @property
    def inherited(self) -> Sequence[Slice]:
        """The slices of calls that run in the pool of a predecessor."""
        return [slice_ for slice_, call in self._calls.items() if call.is_inherited]

    def add(self, slice_: Slice) -> None:
        """Keep the lanes of a slice's running calls busy; call it before they are released."""
        ordering = slice_.partition.ordering
        lane_of = ordering.lane_of
        if lane_of is None:
            return
        running = slice_.all_running()
        lanes = [lane for each in running if (lane := lane_of(each)) is not None]
        if not lanes:
            return
        call = OutlivedCall(slice_, slice_.partition.home, running[0].offset(), lanes)
        self._calls[slice_] = call
        call.hold_in(ordering.lanes)

    def inherit(self, calls: Iterable[OutlivedCall]) -> None:
        """Take over the calls of a predecessor, whose poll thread has ended."""
        for call in calls:
            self._calls[call.slice_] = evolve(call, is_inherited=True)

    def hold_in(self, lanes: Lanes, home: TopicPartition) -> None:
        """Keep lanes busy in a source partition that begins with nothing in progress."""
        for call in self._calls.values():
            if call.home == home:
                call.hold_in(lanes)

    def ended(self, slice_: Slice) -> OutlivedCall | None:
        """Release the lanes of a slice that has come back; return None if it held none."""
        call = self._calls.pop(slice_, None)
        if call is not None:
            call.end()
        return call
