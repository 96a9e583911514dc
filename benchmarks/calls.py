"""The times of all handler calls, recorded by the handler itself, and figures from them."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

from benchmarks.workloads import Ordering
from window_consumer import Record

Handler = Callable[[Record], object]
BatchHandler = Callable[[list[Record]], object]
AsyncHandler = Callable[[Record], Awaitable[object]]

_ITEM_BYTES = 8


class Calls:
    """Start and end of the call for each record of a topic without holes.

    All memory is allocated in advance, so recording costs two assignments. No two calls write to
    the same place: a record that is handled twice is recorded as repeated. The framework's own
    counters are not used.
    """

    def __init__(self, counts: Sequence[int], *, keyed: bool = False):
        """``counts`` are the records of each partition; ``keyed`` keeps their keys as well."""
        self.started = [array("d", bytes(_ITEM_BYTES * count)) for count in counts]
        self.ended = [array("d", bytes(_ITEM_BYTES * count)) for count in counts]
        self.keys: list[list[bytes | None]] = [[None] * count for count in counts if keyed]
        self.repeated: list[tuple[int, int]] = []

    def noting(self, work: Handler) -> Handler:
        """Wrap a handler to record each call's start and end, and the record's key."""
        begins, ends = self._begins, self._ends

        def handle(record: Record) -> None:
            partition, offset = begins(record)
            work(record)
            ends(partition, offset)

        return handle

    def noting_batches(self, work: Handler) -> BatchHandler:
        """Wrap a batch handler: its records are handled one after the other, in order."""
        note = self.noting(work)

        def handle(records: list[Record]) -> None:
            for record in records:
                note(record)

        return handle

    def noting_coroutine(self, work: AsyncHandler) -> AsyncHandler:
        """Wrap a coroutine function in the same way."""

        async def handle(record: Record) -> None:
            partition, offset = self._begins(record)
            await work(record)
            self._ends(partition, offset)

        return handle

    def _begins(self, record: Record) -> tuple[int, int]:
        partition, offset = record.partition, record.offset
        if self.started[partition][offset]:
            self.repeated.append((partition, offset))
        if self.keys:
            self.keys[partition][offset] = record.key
        self.started[partition][offset] = perf_counter()
        return partition, offset

    def _ends(self, partition: int, offset: int) -> None:
        self.ended[partition][offset] = perf_counter()

    @property
    def lost(self) -> int:
        """How many records have no ended call."""
        return sum(ends.count(0.0) for ends in self.ended)

    def order_violations(self, ordering: Ordering) -> int:
        """Return how many records started before the previous one of their lane had ended."""
        if ordering == "unordered":
            return 0
        found = 0
        for partition, starts in enumerate(self.started):
            lanes = self.keys[partition] if ordering == "key" else [b""] * len(starts)
            found += _violations(lanes, starts, self.ended[partition])
        return found

    @property
    def first_start(self) -> float:
        """When the first call began."""
        return min(start for start, _ in self._over())

    @property
    def last_start(self) -> float:
        """When the last call began."""
        return max(start for start, _ in self._over())

    @property
    def last_end(self) -> float:
        """When the last call ended."""
        return max(end for _, end in self._over())

    @property
    def latency_s(self) -> float:
        """The average duration of a call."""
        durations = [end - start for start, end in self._over()]
        return sum(durations) / len(durations)

    def busy(self, slots: int) -> float:
        """Return the share of the slots' time spent in calls, until the last call begins."""
        begin, until = self.first_start, self.last_start
        worked = sum(min(end, until) - start for start, end in self._over())
        return worked / (slots * (until - begin))

    def ended_within(self, partition: int, begin: float, until: float) -> int:
        """Return how many calls for records of a partition ended in an interval."""
        return sum(begin <= end <= until for end in self.ended[partition])

    def _over(self) -> Iterator[tuple[float, float]]:
        for starts, ends in zip(self.started, self.ended, strict=True):
            for start, end in zip(starts, ends, strict=True):
                if end:
                    yield start, end


def _violations(
    lanes: Sequence[bytes | None], starts: Sequence[float], ends: Sequence[float]
) -> int:
    """Count violations in one partition; records without a key have no order."""
    free_at: dict[Any, float] = {}
    found = 0
    for lane, start, end in zip(lanes, starts, ends, strict=True):
        if lane is None or not end:
            continue
        found += start < free_at.get(lane, 0.0)
        free_at[lane] = end
    return found
