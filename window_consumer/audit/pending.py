"""Finished records of one assignment that no commit covers yet: pure arithmetic on offsets.

A commit covers offsets by ``next_offset`` and by the finished ranges in its metadata. Offsets that
it covers first are counted, each stretch separately. If that commit does not arrive, its stretches
run again as a whole. If a later commit has no room for a range, that whole range runs again. So a
count is valid or replaced as a whole.

A stretch begins and ends with a record that it contains. A hole of the log may have been a record
for an earlier assignment, which counted it together with its neighbours.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from attrs import frozen

from window_consumer.audit.count import CountTier
from window_consumer.audit.sums import Columns, SumsByBucket
from window_consumer.engine.offsets import after, is_contiguous
from window_consumer.model.offset_ranges import Ranges, united, without

FOLD_RECORDS = 4096
"""The most records with separate columns; then those behind the window are added up."""


class _Portion(NamedTuple):
    """Records that finished together with the same outcome."""

    tier: CountTier
    offsets: Sequence[int]
    """Ascending; a range if there are no holes."""
    columns: Columns


@frozen(eq=False)
class BucketStretch:
    """Offsets that one commit covers first, and that can only be replaced together."""

    offsets: Ranges
    sums: SumsByBucket


class PendingCounts:
    """One assignment's finished records that no commit has covered.

    Owner: poll thread.
    """

    def __init__(self, finished: Iterable[range], length_ms: int):
        """``finished`` beyond the committed offset was counted by an earlier assignment."""
        self._length_ms = length_ms
        self._beyond: Ranges = _pairs(finished)
        """The ranges beyond the committed offset that were counted."""
        self._starts = [start for start, _ in self._beyond]
        self._portions: list[_Portion] = []
        self._kept = 0
        self._below = SumsByBucket(length_ms)
        """Sums behind the window, which the next commit covers, whatever its metadata."""
        self._gaps: dict[int, tuple[int, int]] = {}
        """Their places between the ranges of ``_beyond``: the first and last offset per gap."""

    def add(
        self, tier: CountTier, offsets: Sequence[int], columns: Columns, next_offset: int
    ) -> None:
        """Add finished records; the window has slid to ``next_offset``.

        ``offsets`` are in the order of the columns.
        """
        count = len(offsets)
        if type(offsets) is not range:
            if sorted(offsets) != list(offsets):
                order = sorted(range(count), key=offsets.__getitem__)
                offsets = [offsets[index] for index in order]
                columns = columns.of(order)
            if is_contiguous(offsets[0], offsets[-1], count):
                offsets = range(offsets[0], after(offsets[-1]))
        self._portions.append(_Portion(tier, offsets, columns))
        self._kept += count
        if self._kept > FOLD_RECORDS:
            self._fold(next_offset)

    def cover(self, next_offset: int, finished: Iterable[range]) -> list[BucketStretch]:
        """Return the records that a commit covers first; the rest stays pending."""
        beyond = without(_pairs(finished), ((0, next_offset),))
        stretches = self._cover_beyond(next_offset, without(beyond, self._beyond))
        self._fold(next_offset)
        if self._below:
            passed = tuple((low, after(high)) for low, high in sorted(self._gaps.values()))
            stretches.insert(0, BucketStretch(passed, self._below))
            self._below = SumsByBucket(self._length_ms)
            self._gaps = {}
        self._beyond = without(united([*self._beyond, *beyond]), ((0, next_offset),))
        self._starts = [start for start, _ in self._beyond]
        return stretches

    def _cover_beyond(self, next_offset: int, pieces: Ranges) -> list[BucketStretch]:
        """Return the stretches of these pieces beyond next_offset; split portions at their ends."""
        starts = [start for start, _ in pieces]
        sums: dict[int, SumsByBucket] = {}
        extents: dict[int, tuple[int, int]] = {}
        left: list[_Portion] = []
        for portion in self._portions:
            for piece, part in self._parts(portion, next_offset, starts, pieces):
                if piece is None:
                    left.append(part)
                    continue
                if piece not in sums:
                    sums[piece] = SumsByBucket(self._length_ms)
                sums[piece].add(part.tier, part.columns)
                _extend(extents, piece, part.offsets[0], part.offsets[-1])
        self._portions = left
        self._kept = sum(len(portion.offsets) for portion in left)
        found = ((*extents[piece], sums[piece]) for piece in sorted(sums))
        return [BucketStretch(((low, after(high)),), these) for low, high, these in found]

    @staticmethod
    def _parts(
        portion: _Portion, next_offset: int, starts: list[int], pieces: Ranges
    ) -> Iterator[tuple[int | None, _Portion]]:
        """Split a portion by the piece that covers its records; None if none does."""
        offsets, columns = portion.offsets, portion.columns

        def piece_of(offset: int) -> int | None:
            index = bisect_right(starts, offset) - 1
            return index if index >= 0 and offset < pieces[index][1] else None

        begin = 0
        while begin < len(offsets):
            first = offsets[begin]
            piece = piece_of(first)
            if first < next_offset:
                stop = next_offset
            elif piece is not None:
                stop = pieces[piece][1]
            else:
                at = bisect_right(starts, first)
                stop = starts[at] if at < len(starts) else after(offsets[-1])
            end = bisect_right(offsets, stop - 1, begin)
            part = _Portion(portion.tier, offsets[begin:end], columns.part(begin, end))
            yield piece, part
            begin = end

    def _fold(self, next_offset: int) -> None:
        """Add up the records behind the window, whose columns are no longer needed."""
        left = []
        for portion in self._portions:
            if portion.offsets[-1] < next_offset:
                self._below.add(portion.tier, portion.columns)
                self._record_gaps(portion.offsets)
            else:
                left.append(portion)
        self._portions = left
        self._kept = sum(len(portion.offsets) for portion in left)

    def _record_gaps(self, offsets: Sequence[int]) -> None:
        low, high = offsets[0], offsets[-1]
        first, last = (bisect_right(self._starts, each) for each in (low, high))
        if first == last:
            _extend(self._gaps, first, low, high)
            return
        for offset in offsets:
            _extend(self._gaps, bisect_right(self._starts, offset), offset, offset)


def _extend(extents: dict[int, tuple[int, int]], where: int, low: int, high: int) -> None:
    """Extend an extent to cover ``low`` to ``high``."""
    before = extents.get(where, (low, high))
    extents[where] = (min(low, before[0]), max(high, before[1]))


def _pairs(ranges: Iterable[range]) -> Ranges:
    return tuple((each.start, each.stop) for each in ranges)
