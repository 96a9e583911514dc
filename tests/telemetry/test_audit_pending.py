"""What a commit covers for the first time is counted, in stretches that run again as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from window_consumer.audit.count import CountTier
from window_consumer.audit.pending import BucketStretch, PendingCounts
from window_consumer.audit.sums import Columns
from window_consumer.model.offset_ranges import Ranges

MINUTE_MS = 60_000


def columns(offsets: Sequence[int]) -> Columns:
    """Each record is as large as its offset, so that sums tell which they are."""
    times_ms = [1_700_000_000_000] * len(offsets)
    return Columns(times_ms, list(offsets), [1 << each for each in offsets], 1_700_000_000_100)


def pending(*finished: range) -> PendingCounts:
    return PendingCounts(finished, MINUTE_MS)


def add(
    to: PendingCounts, offsets: Sequence[int], tier: CountTier = CountTier.FINISHED, passed: int = 0
) -> None:
    to.add(tier, offsets, columns(offsets), passed)


def reported(stretches: Iterable[BucketStretch]) -> list[tuple[Ranges, dict[CountTier, list[int]]]]:
    """Of which offsets each stretch says that it is, and the records that are in it."""
    found = []
    for stretch in stretches:
        records = {}
        for (tier, _), sums in stretch.sums.items():
            records[tier] = [bit for bit in range(200) if sums.id_sum >> bit & 1]
            assert (sums.count, sums.bytes) == (len(records[tier]), sum(records[tier]))
        found.append((stretch.offsets, records))
    return found


def test_what_lies_below_the_committed_offset_is_one_stretch() -> None:
    given_up = pending()
    add(given_up, range(5))
    add(given_up, range(5, 6), CountTier.RETRIED)
    assert reported(given_up.cover(6, ())) == [
        (((0, 6),), {CountTier.FINISHED: [0, 1, 2, 3, 4], CountTier.RETRIED: [5]})
    ]
    assert not given_up.cover(6, ())


def test_each_finished_range_is_a_stretch_of_its_own_cut_at_the_committed_offset() -> None:
    audit = pending()
    add(audit, [7, 1, 4, 0, 2, 5])
    assert reported(audit.cover(2, (range(2, 3), range(4, 6), range(7, 8)))) == [
        (((0, 2),), {CountTier.FINISHED: [0, 1]}),
        (((2, 3),), {CountTier.FINISHED: [2]}),
        (((4, 6),), {CountTier.FINISHED: [4, 5]}),
        (((7, 8),), {CountTier.FINISHED: [7]}),
    ]


def test_a_range_that_has_been_counted_is_left_out_when_the_window_passes_it() -> None:
    audit = pending()
    add(audit, range(3, 5))
    audit.cover(0, (range(3, 5),))
    add(audit, range(3))
    add(audit, range(5, 8))
    assert reported(audit.cover(8, ())) == [
        (((0, 3), (5, 8)), {CountTier.FINISHED: [0, 1, 2, 5, 6, 7]})
    ]


def test_a_range_that_grows_is_counted_by_what_was_added() -> None:
    audit = pending()
    add(audit, range(3, 5))
    audit.cover(0, (range(3, 5),))
    add(audit, range(5, 6))
    assert reported(audit.cover(0, (range(3, 6),))) == [(((5, 6),), {CountTier.FINISHED: [5]})]


def test_what_a_commit_has_no_room_for_is_counted_by_one_that_has() -> None:
    audit = pending()
    add(audit, [1, 5, 9])
    assert reported(audit.cover(1, (range(1, 2), range(5, 6)))) == [
        (((1, 2),), {CountTier.FINISHED: [1]}),
        (((5, 6),), {CountTier.FINISHED: [5]}),
    ]
    assert reported(audit.cover(2, (range(5, 6), range(9, 10)))) == [
        (((9, 10),), {CountTier.FINISHED: [9]})
    ]


def test_what_was_finished_before_is_not_ours_to_count() -> None:
    audit = pending(range(2, 4), range(6, 7))
    add(audit, [0, 1, 4, 5])
    assert reported(audit.cover(7, ())) == [(((0, 2), (4, 6)), {CountTier.FINISHED: [0, 1, 4, 5]})]


def test_a_hole_beside_what_was_counted_before_is_in_no_stretch() -> None:
    # Offset 4 was a record, and counted together with 5, before it was compacted away.
    audit = pending(range(5, 6))
    add(audit, range(3, 4))
    add(audit, [6, 8])
    assert reported(audit.cover(9, ())) == [(((3, 4), (6, 9)), {CountTier.FINISHED: [3, 6, 8]})]


def test_columns_are_not_kept_once_the_window_has_passed_them() -> None:
    audit = pending()
    for start in range(0, 200_000, 500):
        times_ms = [1_700_000_000_000] * 500
        many = Columns(times_ms, [10] * 500, None, 1_700_000_000_000)
        audit.add(CountTier.FINISHED, range(start, start + 500), many, max(0, start - 1000))
        assert audit._kept <= 4096 + 500 + 1500
    (stretch,) = audit.cover(200_000, ())
    ((_, sums),) = stretch.sums.items()
    assert (sums.count, sums.bytes) == (200_000, 2_000_000)


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_every_record_is_counted_in_the_stretch_that_it_lies_in(seed: int) -> None:
    rng = Random(seed)
    waiting = rng.sample(range(80), 60)
    audit, done, counted = pending(), set[int](), set[int]()
    next_offset = 0
    while waiting:
        taken = [waiting.pop() for _ in range(min(len(waiting), 1 + int(rng.random() * 9)))]
        add(audit, taken, rng.choice((CountTier.FINISHED, CountTier.RETRIED)), next_offset)
        done.update(taken)
        open_ones = sorted(waiting)
        next_offset = open_ones[0] if open_ones else 80
        beyond = [range(each, each + 1) for each in sorted(done) if each >= next_offset]
        fitting = beyond[: int(rng.random() * (len(beyond) + 1))]
        for offsets, records in reported(audit.cover(next_offset, fitting)):
            here = {offset for each in records.values() for offset in each}
            lie_in = {offset for start, stop in offsets for offset in range(start, stop)}
            assert here <= lie_in
            assert not here & counted
            assert lie_in & done <= here | counted
            counted |= here
        covered = {each for each in done if each < next_offset}
        assert counted >= covered | {each.start for each in fitting}
    assert counted == done
