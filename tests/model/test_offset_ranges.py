"""Ranges of offsets are sets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from window_consumer.model.offset_ranges import overlap, united, without

ranges_of = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9))).map(
    lambda pairs: [(start, start + length) for start, length in pairs]
)


def points(ranges: Any) -> set[int]:
    return {offset for start, stop in ranges for offset in range(start, stop)}


@given(ranges_of, ranges_of)
def test_ranges_are_sets_of_offsets(some: list[Any], others: list[Any]) -> None:
    one, other = united(some), united(others)
    assert points(one) == points(some)
    assert all(a[1] < b[0] for a, b in pairwise(one))
    assert points(without(one, other)) == points(one) - points(other)
    assert overlap(one, other) == bool(points(one) & points(other))
