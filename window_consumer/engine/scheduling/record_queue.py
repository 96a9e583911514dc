"""Records that wait to start, in delivered order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum

from window_consumer.model.record import Message


class Place(Enum):
    """The place in a window that a single record is taken from."""

    LAST = "last"
    MIDDLE = "middle"
    FIRST = "first"

    def of(self, count: int) -> int:
        """Return the index of this place among ``count`` items."""
        return {Place.LAST: count - 1, Place.MIDDLE: count // 2, Place.FIRST: 0}[self]


class RecordRun:
    """Records in delivered order with their sequence numbers and payload size in bytes."""

    __slots__ = ("bytes", "messages", "seqs")

    def __init__(self, messages: list[Message], seqs: Sequence[int], size: int):
        self.messages = messages
        self.seqs = seqs
        self.bytes = size

    @classmethod
    def of(cls, messages: list[Message], seqs: Sequence[int]) -> RecordRun:
        """Make a run and measure it."""
        return cls(messages, seqs, sum(map(len, messages)))

    def __len__(self) -> int:
        return len(self.messages)

    def is_followed_by(self, other: RecordRun) -> bool:
        """Return whether the two could form one run without a hole in the sequence numbers."""
        return (
            isinstance(self.seqs, range)
            and isinstance(other.seqs, range)
            and self.seqs.stop == other.seqs.start
        )


class RunQueue:
    """A queue that accepts and returns runs of any length. Owner: poll thread.

    A run that is taken whole passes through untouched. A run that is taken in pieces is reversed
    once, so that each piece is cut off its end: a slow handler takes thousands of records one by
    one.
    """

    __slots__ = ("_cut", "_cut_at", "_cut_seqs", "_runs", "records")

    def __init__(self) -> None:
        self.records = 0
        """How many records are in the queue."""
        self._runs: deque[RecordRun] = deque()
        self._cut: list[Message] = []
        """The rest of the front run, last record first."""
        self._cut_seqs: Sequence[int] = ()
        self._cut_at = 0

    def append(self, run: RecordRun) -> None:
        """Put records at the end."""
        self._runs.append(run)
        self.records += len(run)

    def put_in_front(self, run: RecordRun) -> None:
        """Put records at the front."""
        if self._cut:
            self._join_cut()
        self._runs.appendleft(run)
        self.records += len(run)

    def take(self, count: int) -> RecordRun | None:
        """Remove and return up to ``count`` records from the front; None if empty."""
        if not self.records:
            return None
        if not self._cut and len(self._runs[0]) > count:
            front = self._runs.popleft()
            self._cut = front.messages[::-1]
            self._cut_seqs = front.seqs
            self._cut_at = 0
        run = self._cut_off(count) if self._cut else self._join(count)
        self.records -= len(run.messages)
        return run

    def take_at(self, place: Place) -> RecordRun | None:
        """Remove and return one record; None if empty. Cost: the length of its run."""
        if place is Place.FIRST or self.records <= 1:
            return self.take(1)
        runs = self._runs
        if self._cut and (place is Place.MIDDLE or not runs):
            self._join_cut()
        index = place.of(len(runs))
        run = runs[index]
        at = place.of(len(run))
        pieces = [
            RecordRun.of(run.messages[part], run.seqs[part])
            for part in (slice(at), slice(at + 1, None))
        ]
        runs.rotate(-index)
        runs.popleft()
        runs.extendleft(piece for piece in reversed(pieces) if len(piece))
        runs.rotate(index)
        self.records -= 1
        return RecordRun.of([run.messages[at]], run.seqs[at : at + 1])

    def _join_cut(self) -> None:
        """Turn the rest of the front run into a run again."""
        left = self._cut[::-1]
        self._runs.appendleft(RecordRun.of(left, self._cut_seqs[self._cut_at :]))
        self._cut = []

    @property
    def first(self) -> Message | None:
        """The record at the front; None if the queue is empty."""
        if self._cut:
            return self._cut[-1]
        return self._runs[0].messages[0] if self._runs else None

    def records_in_order(self) -> Iterator[tuple[int, Message]]:
        """Yield the records in order with their sequence numbers."""
        yield from zip(self._cut_seqs[self._cut_at :], reversed(self._cut), strict=False)
        for run in self._runs:
            yield from zip(run.seqs, run.messages, strict=True)

    def clear(self) -> None:
        """Remove everything."""
        self._runs.clear()
        self._cut = []
        self.records = 0

    def _cut_off(self, count: int) -> RecordRun:
        messages = self._cut[: -count - 1 : -1]
        del self._cut[-count:]
        start = self._cut_at
        self._cut_at = stop = start + len(messages)
        return RecordRun.of(messages, self._cut_seqs[start:stop])

    def _join(self, count: int) -> RecordRun:
        """Take whole runs while they fit and follow one another."""
        runs = self._runs
        run = runs.popleft()
        while runs and len(run) + len(runs[0]) <= count and run.is_followed_by(runs[0]):
            following = runs.popleft()
            seqs = range(run.seqs[0], following.seqs[-1] + 1)
            run = RecordRun(run.messages + following.messages, seqs, run.bytes + following.bytes)
        return run
