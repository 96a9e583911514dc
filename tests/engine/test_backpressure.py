from __future__ import annotations

from tests.engine.driver import Driven
from tests.engine.support import ONE_BY_ONE, ORDERS, OTHERS, Note, notes
from window_consumer.engine.retry.policy import RetryRules


def test_a_full_window_fills_a_buffer_then_pauses_its_partition_alone() -> None:
    driven = Driven(names=[ORDERS, OTHERS], batch_records=1, **{**ONE_BY_ONE, "slots": 1})
    driven.deliver(*notes(*range(12)))
    assert driven.tick(0.01).pause == []
    driven.deliver(*notes(12))
    assert driven.tick(0.01).pause == []
    driven.deliver(*notes(13))  # two batches of one record
    assert driven.tick(0.01).pause == [ORDERS]


def test_a_paused_partition_goes_on_where_it_stopped_once_it_has_room() -> None:
    driven = Driven(batch_records=1, **ONE_BY_ONE)
    driven.deliver(*notes(*range(14)))
    driven.tick(0.01)
    assert driven.last.pause == [ORDERS]
    resumed = []
    while driven.out:
        driven.finish(driven.out[0])
        resumed += driven.tick(0.01).resume
    assert resumed == [(ORDERS, 14)]
    assert driven.committable == 14


def test_bytes_are_bounded_over_all_partitions() -> None:
    driven = Driven(names=[ORDERS, OTHERS], window_bytes=10_000)
    driven.deliver(*notes(0, size=4_000))
    assert driven.tick(0.01).pause == []
    driven.deliver(*notes(1, size=5_000))
    assert driven.tick(0.01).pause == [ORDERS]
    driven.deliver(Note(0, size=1_000), name=OTHERS)
    assert driven.tick(0.01).pause == []
    assert driven.engine.appetite() == 0
    driven.finish_all()
    assert [name for name, _ in driven.tick(0.01).resume] == [ORDERS]


def test_where_no_partition_may_take_more_nothing_is_asked_for_and_nothing_paused() -> None:
    driven = Driven(window_bytes=10_000)
    driven.deliver(*notes(0, 1, size=5_500))
    assert driven.tick(0.01).pause == []
    assert driven.engine.appetite() == 0
    driven.finish_all()
    assert driven.engine.appetite() > 0


def test_what_still_comes_in_beyond_the_bound_pauses_the_partition() -> None:
    driven = Driven(window_bytes=10_000)
    driven.deliver(*notes(0, 1, size=5_500))
    driven.deliver(*notes(2, size=5_500))
    assert driven.tick(0.01).pause == [ORDERS]


def test_a_record_larger_than_the_whole_budget_passes_alone() -> None:
    driven = Driven(window_bytes=1_000)
    assert driven.engine.appetite() > 0
    driven.deliver(*notes(0, size=50_000))
    assert driven.tick(0.01).pause == [ORDERS]
    assert driven.engine.appetite() == 0
    driven.finish_all()
    assert driven.tick(0.01).resume == [(ORDERS, 1)]
    assert driven.engine.appetite() == 1
    assert driven.committable == 1
    assert driven.engine.budget.used == 0


def test_large_records_are_asked_for_in_small_batches() -> None:
    driven = Driven(window_bytes=4_000_000)
    small = driven.engine.appetite()
    driven.deliver(*notes(*range(10), size=100_000))
    driven.tick()
    driven.finish_all()
    assert driven.engine.appetite() == 5 < small


def test_what_exceeds_the_bound_is_paused_before_the_next_batch() -> None:
    driven = Driven(names=[ORDERS, OTHERS], window_bytes=100)
    driven.tick(0.01)
    driven.deliver(*notes(0, size=150))
    assert driven.tick().pause == [ORDERS]


def test_copies_are_held_within_the_bound_one_at_least() -> None:
    spent = RetryRules(attempts=1)
    driven = Driven(window_bytes=100, retry=spent)
    driven.deliver(*notes(0, 1, 2, size=40))
    driven.tick()
    while driven.out:
        slice_ = driven.out[0]
        driven.fail(slice_, *(message.offset() for message in slice_.messages))
    first = driven.published_one()
    assert driven.published() == []
    driven.copied(first)
    assert len(driven.published()) == 1
