"""Sets of offsets, written as ranges: joined, subtracted and compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Ranges = tuple[tuple[int, int], ...]
"""Offsets, ascending and apart from each other; each range up to its second number (exclusive)."""


def united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges in order, those joined that touch or overlap."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        elif start < stop:
            joined.append((start, stop))
    return tuple(joined)


def without(ranges: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> Ranges:
    """Return what of ascending ranges lies in none of the others, which are ascending, too."""
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
    """Tell whether ascending ranges have an offset in common with others, ascending as well."""
    one = other = 0
    while one < len(some) and other < len(others):
        if some[one][1] <= others[other][0]:
            one += 1
        elif others[other][1] <= some[one][0]:
            other += 1
        else:
            return True
    return False
