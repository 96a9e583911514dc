from __future__ import annotations

import pytest

from tests.engine.driver import Driven
from tests.engine.support import failure, notes
from window_consumer.engine.scheduling.slice_length import SliceLength
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import Skip


def a_slice(*offsets: int) -> Slice:
    driven = Driven()
    partition = next(iter(driven.engine.partitions.values()))
    return Slice(partition, notes(*offsets), range(len(offsets)), 10 * len(offsets))


def test_what_a_slot_has_claimed_follows_from_what_is_left() -> None:
    slice_ = a_slice(7, 8, 9)
    assert (slice_.claimed(), slice_.running()) == (0, None)
    slice_.started = 1.0
    claimed = next(slice_.unclaimed)
    assert slice_.running() is claimed
    assert slice_.claimed() == 1


def test_taking_back_leaves_the_running_record_and_ends_the_slots_loop() -> None:
    slice_ = a_slice(7, 8, 9, 10)
    slice_.started = 1.0
    next(slice_.unclaimed)
    next(slice_.unclaimed)
    past, unclaimed, seqs = slice_.split()
    assert [m.offset() for m in past.messages] == [7]
    assert [m.offset() for m in slice_.messages] == [8]
    assert [m.offset() for m in unclaimed] == [9, 10]
    assert (list(past.seqs), list(slice_.seqs), list(seqs)) == ([0], [1], [2, 3])
    assert list(slice_.unclaimed) == []
    assert slice_.bytes == 10


def test_a_slice_that_has_not_begun_gives_everything_back() -> None:
    slice_ = a_slice(7, 8)
    past, unclaimed, _ = slice_.split()
    assert (past.messages, slice_.messages, len(unclaimed)) == ([], [], 2)


def test_what_deviates_is_distinguished_from_what_is_done() -> None:
    slice_ = a_slice(*range(6))
    noted = slice_.deviate()
    messages = slice_.messages
    noted.failed.append((messages[1], failure()))
    noted.skip(messages[3], Skip())
    noted.held.append(messages[4])
    results = slice_.results()
    assert [(list(seqs), done) for seqs, done in results.done] == [
        ([index], [messages[index]]) for index in (0, 2, 5)
    ]
    assert [index for index, _ in results.failed] == [1]
    assert (list(results.skipped), results.held) == ([3], [4])
    assert not slice_.plain


def test_after_a_split_each_half_knows_its_own_deviations() -> None:
    slice_ = a_slice(*range(4))
    noted = slice_.deviate()
    for _ in range(3):
        next(slice_.unclaimed)
    noted.failed.append((slice_.messages[0], failure()))
    past, _, _ = slice_.split()
    noted.failed.append((slice_.messages[0], failure()))
    assert [index for index, _ in past.results().failed] == [0]
    assert [index for index, _ in slice_.results().failed] == [0]
    assert slice_.results().done == []


@pytest.mark.parametrize(
    ("cost_s", "records"), [(1e-7, 2000), (1e-4, 50), (1e-3, 5), (0.01, 1), (10.0, 1)]
)
def test_a_slice_grows_until_it_takes_its_target(cost_s: float, records: int) -> None:
    length = SliceLength(target_s=0.005, max_records=2000)
    assert length.records == 1
    for _ in range(200):
        length.record(length.records, length.records * cost_s)
        length.learn()
    assert length.records == pytest.approx(records, abs=1)


def test_one_slow_record_does_not_outweigh_thousands_of_fast_ones() -> None:
    length = SliceLength(target_s=0.005, max_records=2000)
    length.record(2000, 2000 * 1e-6)
    length.learn()
    length.record(1, 0.05)
    length.learn()
    assert length.cost_s < 1e-4


def test_a_handler_that_became_slow_is_noticed_within_a_few_calls() -> None:
    length = SliceLength(target_s=0.005, max_records=2000)
    for _ in range(100):
        length.record(2000, 2000 * 1e-6)
        length.learn()
    for _ in range(20):
        length.record(1, 0.5)
        length.learn()
    assert length.records == 1
