"""An ordering around another one, from which it lets fewer records start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.scheduling.ordering import Ordering
from window_consumer.engine.scheduling.record_queue import RecordRun
from window_consumer.model.record import Message


class WrappedOrdering(Ordering):
    """Leaves everything to the inner ordering, which is the one that shares the lanes."""

    def __init__(self, inner: Ordering):
        self._inner = inner
        self.lanes = inner.lanes
        self.lane_of = inner.lane_of

    @property
    def plain(self) -> Ordering:
        return self._inner.plain

    def within(self, wrap: Callable[[Ordering], Ordering]) -> Ordering:
        self._inner = self._inner.within(wrap)
        return self

    @property
    def singly(self) -> bool:
        """No record follows another of its lane in a slice."""
        return self._inner.singly

    @singly.setter
    def singly(self, value: bool) -> None:
        self._inner.singly = value

    @property
    def startable(self) -> int:
        return self._inner.startable

    @property
    def oldest(self) -> Message | None:
        return self._inner.oldest

    @property
    def longest_line(self) -> tuple[Lane, int] | None:
        return self._inner.longest_line

    def line_of(self, lane: Lane | None) -> int:
        return self._inner.line_of(lane)

    def waiting(self) -> Iterator[tuple[int, Message]]:
        return self._inner.waiting()

    def add(self, run: RecordRun) -> None:
        self._inner.add(run)

    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:
        return self._inner.acquire(lanes)

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        self._inner.put_back(messages, seqs)

    def clear(self) -> None:
        self._inner.clear()

    def leave(self) -> None:
        self._inner.leave()
        self.clear()
