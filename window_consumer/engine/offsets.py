"""Offsets in delivered order: the only module that computes the offset after another one.

A log has holes (compaction, transaction markers), so the record after offset 7 may have offset 19.
The rest of the engine therefore uses *sequence numbers*: 0 for the first record that an assignment
delivered, 1 for the second, without holes. This module translates.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain


def after(offset: int) -> int:
    """Return the next_offset (exclusive) that covers everything up to ``offset``."""
    return offset + 1


def is_contiguous(first: int, last: int, count: int) -> bool:
    """Return whether ``count`` strictly increasing offsets from first to last leave no hole."""
    return last - first == count - 1


def runs_of(offsets: Sequence[int]) -> Iterator[range]:
    """Split strictly increasing offsets into maximal runs without a hole."""
    start = 0
    for index in range(1, len(offsets) + 1):
        if index == len(offsets) or offsets[index] != after(offsets[index - 1]):
            yield range(offsets[start], after(offsets[index - 1]))
            start = index


class DeliveredOffsets:
    """The offsets of the records that one assignment delivered, by sequence number.

    Stored as runs without holes, so a log without holes costs nothing a record. Owner: poll thread.
    """

    __slots__ = ("_firsts", "_seqs", "next_offset", "next_seq")

    def __init__(self, next_offset: int):
        self._seqs: list[int] = []
        self._firsts: list[int] = []
        self.next_seq = 0
        self.next_offset = next_offset
        """One past the last delivered record; offsets below it have been delivered before."""

    def append(self, offsets: range) -> int:
        """Record a delivered run and return the sequence number of its first record."""
        if offsets.start < self.next_offset:
            msg = f"offset {offsets.start} was delivered although {self.next_offset} was next"
            raise ValueError(msg)
        seq = self.next_seq
        if offsets.start != self.next_offset or not self._seqs:
            self._seqs.append(seq)
            self._firsts.append(offsets.start)
        self.next_seq = seq + len(offsets)
        self.next_offset = offsets.stop
        return seq

    def offset_of(self, seq: int) -> int:
        """Return the offset of a record that has not been dropped."""
        run = bisect_right(self._seqs, seq) - 1
        return self._firsts[run] + (seq - self._seqs[run])

    def seq_of(self, offset: int) -> int:
        """Return the sequence number of a delivered offset that has not been dropped."""
        run = bisect_right(self._firsts, offset) - 1
        return self._seqs[run] + (offset - self._firsts[run])

    def drop_before(self, seq: int) -> None:
        """Drop the runs that end before ``seq``."""
        run = bisect_right(self._seqs, seq) - 1
        if run > 0:
            del self._seqs[:run]
            del self._firsts[:run]


class FinishedBefore(deque[range]):
    """Offsets that earlier assignments finished, in order, until they are delivered again.

    Empty for nearly all partitions, and soon after an assignment. Owner: poll thread.
    """

    def pieces(self, run: range) -> Iterator[tuple[range, bool]]:
        """Split delivered offsets into those that were finished (True) and the rest, in order.

        What lies before them is dropped.
        """
        start = run.start
        while start < run.stop:
            while self and self[0].stop <= start:
                self.popleft()
            finished = self[0] if self else range(run.stop, run.stop)
            was_finished = finished.start <= start
            stop = min(finished.stop if was_finished else finished.start, run.stop)
            yield range(start, stop), was_finished
            start = stop

    def joined_to(self, finished: Iterable[range], next_offset: int) -> Iterator[range]:
        """Yield finished offsets of the window, then those from ``next_offset`` on; joined.

        Records that an earlier assignment finished count even before they are delivered: a
        partition may be revoked before its first record arrives.
        """
        last: range | None = None
        for each in chain(finished, self._from(next_offset)):
            if last is not None and last.stop == each.start:
                last = range(last.start, each.stop)
                continue
            if last is not None:
                yield last
            last = each
        if last is not None:
            yield last

    def _from(self, next_offset: int) -> Iterator[range]:
        for each in self:
            if each.stop > next_offset:
                yield range(max(each.start, next_offset), each.stop)
