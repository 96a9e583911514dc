"""Ranges of offsets: one, and sets of them with their union, difference and overlap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

Ranges = tuple[tuple[int, int], ...]
"""Ranges of offsets, ascending and disjoint; the second number is exclusive."""


@frozen
class Span:
    """The offsets of a partition to read: from ``first`` to ``end`` (exclusive)."""

    first: int
    end: int

    @property
    def count(self) -> int:
        """The most records that it can hold; holes in the log reduce them."""
        return max(0, self.end - self.first)


def united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the union of ranges in order; ranges that touch or overlap are joined."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        elif start < stop:
            joined.append((start, stop))
    return tuple(joined)


def without(ranges: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> Ranges:
    """Return the parts of ascending ranges outside the others, which must also ascend."""
    return tuple(_without(ranges, list(others)))


def _without(
    ranges: Iterable[tuple[int, int]], others: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    index = 0
    for first, stop in ranges:
        start = first
        while index < len(others) and others[index][1] <= start:
            index += 1
        at = index
        while start < stop and at < len(others) and others[at][0] < stop:
            if others[at][0] > start:
                yield start, others[at][0]
            start = max(start, others[at][1])
            at += 1
        if start < stop:
            yield start, stop


def overlap(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    """Return whether two sequences of ascending ranges have an offset in common."""
    one = other = 0
    while one < len(some) and other < len(others):
        if some[one][1] <= others[other][0]:
            one += 1
        elif others[other][1] <= some[one][0]:
            other += 1
        else:
            return True
    return False
