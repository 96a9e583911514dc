"""All that see a record choose alike, and as many as were asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from window_consumer.trace.sampling import Sampling, seed_of

ratios = st.integers(1, 1_000_000).map(lambda millionths: millionths / 1_000_000)


@given(ratios, st.integers(0, 2**50), st.lists(st.integers(1, 300), min_size=1, max_size=5))
def test_places_are_chosen_alike_however_records_are_delivered(
    ratio: float, first: int, lengths: list[int]
) -> None:
    sampling, seed = Sampling(ratio), seed_of("orders", 3)
    stop = first + sum(lengths)
    piecewise, begin = [], first
    for length in lengths:
        piecewise += sampling.places(seed, begin, begin + length)
        begin += length
    assert piecewise == sampling.places(seed, first, stop)
    assert piecewise == sorted(set(piecewise))


@given(ratios, st.integers(0, 2**40))
def test_a_single_place_is_chosen_as_in_a_run(ratio: float, first: int) -> None:
    sampling, seed = Sampling(ratio), seed_of("orders", 0)
    chosen = sampling.places(seed, first, first + 30)
    one_by_one = [o for o in range(first, first + 30) if sampling.takes_place(seed, o)]
    assert one_by_one == chosen


@pytest.mark.parametrize("ratio", [1.0, 0.7, 0.5, 0.1, 0.01])
def test_the_share_is_kept_by_place_and_by_name(ratio: float) -> None:
    sampling = Sampling(ratio)
    places = sampling.places(seed_of("orders", 1), 12_345, 112_345)
    assert abs(len(places) / 100_000 - ratio) < 0.001
    names = sum(sampling.takes(str(number).encode()) for number in range(50_000))
    assert abs(names / 50_000 - ratio) < 0.01


def test_partitions_do_not_choose_the_same_places() -> None:
    sampling = Sampling(0.01)
    one, other = (set(sampling.places(seed_of("orders", p), 0, 100_000)) for p in (0, 1))
    assert len(one & other) < len(one) / 10


def test_places_follow_no_rhythm() -> None:
    places = Sampling(0.01).places(seed_of("orders", 0), 0, 100_000)
    assert len({place % 100 for place in places}) > 90


def test_the_places_of_a_ratio_are_fixed_for_ever() -> None:
    assert Sampling(0.01).places(seed_of("orders", 3), 0, 400) == [31, 110, 299, 344]
    assert [each for each in "abcdef" if Sampling(0.5).takes(each.encode())] == ["b", "c", "f"]
