from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.golden_texts import Golden
from window_consumer.engine.offsets import DeliveredOffsets, is_contiguous, runs_of

increasing = st.lists(st.integers(0, 10_000), min_size=1, max_size=60, unique=True).map(sorted)


@given(increasing)
def test_runs_split_at_holes_and_lose_nothing(offsets: list[int]) -> None:
    runs = list(runs_of(offsets))
    assert [offset for run in runs for offset in run] == offsets
    assert all(left.stop < right.start for left, right in pairwise(runs))


@given(increasing)
def test_a_run_is_contiguous_exactly_when_its_ends_say_so(offsets: list[int]) -> None:
    contiguous = is_contiguous(offsets[0], offsets[-1], len(offsets))
    assert contiguous == (offsets == list(range(offsets[0], offsets[-1] + 1)))


@given(increasing, st.integers(0, 59))
def test_offsets_and_sequence_numbers_translate_both_ways(offsets: list[int], drop: int) -> None:
    delivered = DeliveredOffsets(0)
    for run in runs_of(offsets):
        delivered.append(run)
    kept = min(drop, len(offsets) - 1)
    delivered.drop_before(kept)
    for seq in range(kept, len(offsets)):
        assert delivered.offset_of(seq) == offsets[seq]
        assert delivered.seq_of(offsets[seq]) == seq
    assert delivered.next_offset == offsets[-1] + 1


def test_a_lower_offset_than_the_last_is_refused(golden: Golden) -> None:
    delivered = DeliveredOffsets(5)
    delivered.append(range(5, 8))
    with golden.raises(ValueError):
        delivered.append(range(7, 9))
