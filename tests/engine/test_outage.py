"""What an outage of what the handler needs does to a worker, with the circuit breaker on."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, failure, notes, spent_after
from window_consumer.engine.guards.breaker.departures import AT_ONCE, SETTLE_S
from window_consumer.engine.guards.breaker_state import BreakerRules, BreakerState
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import Fatal, RetryLater, Skip
from window_consumer.model.record import TopicPartition

WhenSpent = Literal["dead_letter", "drop"]

LONG_S = SETTLE_S * 2


def worker(
    attempts: int = 1, *, records: int = 200, when_spent: WhenSpent = "dead_letter", slots: int = 4
) -> Driven:
    retry = spent_after(attempts, when_spent=when_spent)
    driven = Driven(slots=slots, retry=retry, breaker=BreakerRules())
    if records:
        driven.deliver(*notes(*range(records)))
        driven.tick()
    return driven


def fail_all(driven: Driven, slice_: Slice, error: BaseException | None = None) -> None:
    driven.fail(slice_, *(m.offset() for m in slice_.messages), error=error)


def outage(driven: Driven, calls: int) -> int:
    """Let calls fail; return how many records were moved meanwhile."""
    moved = failed = 0
    while failed < calls and driven.out:
        for slice_ in list(driven.out):
            failed += len(slice_.messages)
            fail_all(driven, slice_)
        for each in driven.published(LONG_S):
            driven.copied(each)
            moved += 1
    return moved


def state(driven: Driven) -> BreakerState:
    return driven.engine.breaker.state


def until(driven: Driven, *states: BreakerState, within_s: float = 60.0) -> int:
    """Let all calls fail until the breaker has one of these states; return how many moved."""
    moved, end = 0, driven.now + within_s
    while state(driven) not in states:
        moved += outage(driven, 1)
        if not driven.out:
            driven.tick(LONG_S)
        assert driven.now < end, state(driven)
    return moved


def go_well(driven: Driven, *, within_s: float = 60.0) -> None:
    """Let all calls return, and time pass, until everything is done."""
    end = driven.now + within_s
    while driven.out or any(each.window.open for each in driven.engine.partitions.values()):
        for slice_ in list(driven.out):
            driven.finish(slice_)
        driven.tick(0.05)
        assert driven.now < end, state(driven)


def opened(attempts: int = 1, *, records: int = 200, slots: int = 4) -> Driven:
    driven = worker(attempts, records=records, slots=slots)
    until(driven, BreakerState.OPEN)
    return driven


def test_at_most_twenty_records_leave_before_it_opens() -> None:
    assert until(worker(1), BreakerState.OPEN) <= 20


def test_after_a_long_time_without_trouble_even_fewer_leave() -> None:
    driven = worker(1, records=5000)
    for _ in range(10):
        for slice_ in list(driven.out):
            driven.finish(slice_, elapsed=0.001 * len(slice_.messages))
        driven.tick(0.001)
    moved = outage(driven, 1000)
    assert state(driven) is not BreakerState.CLOSED
    assert moved <= 20


def test_the_spent_records_of_one_long_slice_are_held_at_once() -> None:
    driven = worker(1, records=0)
    driven.engine.dispatcher.length.records = 500
    driven.engine.dispatcher.length.cost_s = 1e-5
    driven.deliver(*notes(*range(500)))
    driven.tick()
    for slice_ in list(driven.out):
        fail_all(driven, slice_)
    assert driven.published(LONG_S) == []


def test_a_few_spent_records_leave_at_once_further_ones_after_a_moment() -> None:
    driven = worker(1, records=AT_ONCE + 2)
    left = []
    while driven.out:
        for slice_ in list(driven.out):
            fail_all(driven, slice_)
        left += driven.published()
    assert len(left) == AT_ONCE
    assert driven.engine.wait_s(driven.now, 60.0) <= SETTLE_S
    assert len(driven.published(SETTLE_S)) == 2


def test_records_that_always_fail_leave_though_nothing_else_is_left_to_call() -> None:
    """... as at the end of a topic, where their last attempts are all that there is to call."""
    driven = worker(2, records=400)
    moved = []
    while driven.out or driven.failing():
        for slice_ in list(driven.out):
            driven.fail(slice_, *(offset for offset in range(0, 400, 10)))
        for each in driven.published(LONG_S):
            driven.copied(each)
            moved.append(each.message.offset())
        assert driven.now < 1010.0, f"{len(moved)} of 40 have left, it is {state(driven)}"
    assert sorted(moved) == list(range(0, 400, 10))
    assert state(driven) is BreakerState.CLOSED


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("ordering", ["unordered", "partition"])
def test_of_windows_with_fewer_records_than_tell_something_at_most_twenty_leave(
    attempts: int, ordering: str
) -> None:
    driven = Driven(
        slots=2,
        ordering=ordering,
        retry=spent_after(attempts),
        breaker=BreakerRules(),
        window_cells=3,
        cell_records=2,
    )
    driven.deliver(*notes(*range(200)))
    driven.tick()
    moved = 0
    for _ in range(3000):
        for slice_ in list(driven.out):
            fail_all(driven, slice_)
        for each in driven.published(0.1):
            driven.copied(each)
            moved += 1
    assert 0 < moved <= 20
    assert state(driven) is not BreakerState.CLOSED


def test_while_it_is_open_single_records_are_called_and_nothing_leaves() -> None:
    driven = opened(records=2000)
    for _ in range(20):
        decisions = driven.tick(1.0)
        assert decisions.publish == []
        for slice_ in list(driven.out):
            assert len(slice_.messages) == 1
            fail_all(driven, slice_)
    assert state(driven) is BreakerState.OPEN


def test_what_has_not_started_is_taken_back_when_it_opens() -> None:
    driven = worker(2)
    running = driven.out[0]
    driven.claim(running)
    for slice_ in driven.out[1:]:
        fail_all(driven, slice_)
    driven.tick(2.0)
    again = [slice_ for slice_ in driven.out if slice_.call.attempt == 2]
    assert again
    before = driven.engine.counters.retried
    driven.engine.breaker.hold(driven.now)
    driven.tick()
    assert state(driven) is BreakerState.OPEN
    assert all(next(slice_.unclaimed, None) is None for slice_ in driven.out)
    assert driven.engine.counters.retried == before - len(again)
    for slice_ in list(driven.out):
        driven.finish(slice_)
    assert driven.engine.counters.processed == len(running.messages)
    go_well(driven)
    assert driven.committable == 200


def test_the_number_of_calls_doubles_while_they_return() -> None:
    driven = opened(records=2000, slots=16)
    driven.tick(1.0)
    most = []
    while state(driven) in (BreakerState.OPEN, BreakerState.HALF_OPEN):
        most.append(len(driven.out))
        for slice_ in list(driven.out):
            assert len(slice_.messages) == 1
            driven.finish(slice_)
        driven.tick(0.05)
    assert most == [1, 2, 4, 8]
    assert state(driven) is BreakerState.POISON


def test_records_that_were_held_are_called_once_more_and_done() -> None:
    driven = worker(1, records=100)
    moved = until(driven, BreakerState.OPEN)
    go_well(driven)
    assert driven.engine.counters.processed == 100 - moved
    assert driven.engine.counters.dead_lettered == moved


def test_a_record_that_was_held_and_fails_again_beside_others_leaves() -> None:
    driven = opened(records=400)
    offset = max(driven.failing_offsets())
    left = []
    for _ in range(400):
        for slice_ in list(driven.out):
            driven.fail(slice_, offset)
        left += driven.published(LONG_S)
    ours = [each for each in left if each.message.offset() == offset]
    assert len(ours) == 1
    assert len(left) == 1


def test_samples_are_new_records_although_those_that_failed_are_due() -> None:
    driven = opened(2)
    driven.deliver(*notes(*range(200, 300)))
    for _ in range(10):
        driven.tick(1.0)
        (sample,) = driven.out
        assert sample.call.attempt == 1
        fail_all(driven, sample)
    assert state(driven) is BreakerState.OPEN


def test_samples_have_other_keys_and_come_from_other_partitions() -> None:
    names = (ORDERS, OTHERS)
    driven = Driven(
        slots=4, names=names, ordering="key", retry=spent_after(1), breaker=BreakerRules()
    )
    for name in names:
        keys = [b"bad"] * 30 + [b"%d" % n for n in range(3000)]
        driven.deliver(*notes(*range(3030), keys=keys), name=name)
    driven.tick()
    until(driven, BreakerState.OPEN)
    sampled: list[tuple[TopicPartition, bytes | None]] = []
    while len(sampled) < 12:
        for sample in list(driven.out):
            sampled.append((sample.partition.name, sample.messages[0].key()))
            fail_all(driven, sample)
        driven.tick(0.2)
    assert len(set(sampled)) == len(sampled)
    assert {name for name, _ in sampled[:2]} == set(names)


def test_without_a_new_record_retries_are_the_samples_until_one_returns() -> None:
    driven = worker(3, records=40)
    until(driven, BreakerState.OPEN)
    for _ in range(200):
        for slice_ in list(driven.out):
            fail_all(driven, slice_)
        driven.tick(1.0)
        assert sum(len(slice_.messages) for slice_ in driven.out) <= 1
    assert driven.engine.counters.dead_lettered == 0
    go_well(driven)
    assert driven.committable == 40


def test_intake_goes_on_by_itself_when_the_handler_does() -> None:
    driven = opened(3)
    for _ in range(50):
        for slice_ in list(driven.out):
            fail_all(driven, slice_)
        driven.tick(1.0)
    go_well(driven)
    assert driven.committable == 200
    assert driven.engine.counters.dead_lettered == 0


def test_fatal_errors_and_skips_never_open_it() -> None:
    driven = worker(1)
    published = 0
    while driven.out:
        for slice_ in list(driven.out):
            fail_all(driven, slice_, Fatal("no"))
        published += len(driven.published(LONG_S))
    assert (state(driven), published) == (BreakerState.CLOSED, 200)
    driven.deliver(*notes(*range(200, 300)))
    driven.tick()
    while driven.out:
        for slice_ in list(driven.out):
            for message in driven.claim(slice_):
                slice_.deviate().skip(message, Skip())
            driven.finish(slice_)
        driven.tick()
    assert state(driven) is BreakerState.CLOSED


@pytest.mark.parametrize("levels", [(), (Level("10s", 10.0),)], ids=["local", "levels"])
@pytest.mark.parametrize("attempts", [1, 3])
def test_when_most_new_records_ask_to_be_called_later_nothing_starts_and_nobody_is_charged(
    attempts: int, levels: tuple[Level, ...]
) -> None:
    retry = spent_after(attempts, levels=levels)
    driven = Driven(slots=4, retry=retry, breaker=BreakerRules())
    driven.deliver(*notes(*range(200)))
    driven.tick()
    calls, published, until = 0, 0, driven.now + 600.0
    while driven.now < until:
        for slice_ in list(driven.out):
            calls += len(slice_.messages)
            fail_all(driven, slice_, RetryLater(10.0))
        published += len(driven.published(LONG_S))
    assert published == 0
    assert driven.engine.counters.breaker_opened == 0
    assert calls <= 60 + 600 / 10.0
    while driven.out or driven.engine.partitions[ORDERS].window.open:
        for slice_ in list(driven.out):
            driven.finish(slice_)
        driven.tick(1.0)
        assert driven.now < until + 60.0
    assert state(driven) is BreakerState.CLOSED
    assert driven.committable == 200


def test_what_is_dropped_when_spent_is_held_as_well() -> None:
    driven = worker(1, when_spent="drop")
    until(driven, BreakerState.OPEN)
    assert driven.engine.counters.dropped <= 20
    go_well(driven)
    assert driven.engine.counters.processed + driven.engine.counters.dropped == 200


def test_an_open_breaker_does_not_hold_up_the_end() -> None:
    driven = opened()
    driven.engine.on_stopping(driven.now)
    driven.tick(1.0)
    assert not driven.engine.work.busy([ORDERS])
    commits, _ = driven.engine.on_revoked([ORDERS], driven.now)
    assert commits[0].next_offset == 0


def test_what_is_spent_leaves_at_once_when_its_partition_is_about_to_go() -> None:
    driven = worker(1)
    slice_ = driven.out[0]
    (message,) = driven.claim(slice_)
    driven.engine.on_revoking([ORDERS], driven.now)
    slice_.deviate().failed.append((message, failure()))
    driven.finish(slice_)
    assert len(driven.published()) == 1


def test_a_sample_of_a_lost_partition_is_followed_by_another() -> None:
    driven = Driven(slots=4, names=(ORDERS, OTHERS), retry=spent_after(1), breaker=BreakerRules())
    for name in (ORDERS, OTHERS):
        driven.deliver(*notes(*range(100)), name=name)
    driven.tick()
    until(driven, BreakerState.OPEN)
    driven.tick(1.0)
    (sample,) = driven.out
    driven.claim(sample)
    driven.engine.on_lost([sample.partition.name], driven.now)
    driven.finish(sample)
    driven.tick(1.0)
    assert [each.partition.accepts_results for each in driven.out] == [True]
    assert state(driven) is BreakerState.OPEN


def test_the_news_are_reported_once() -> None:
    driven = worker(1)
    reported = []
    while state(driven) is not BreakerState.OPEN:
        for slice_ in list(driven.out):
            fail_all(driven, slice_)
        reported += driven.tick(LONG_S).breaker
    assert [each.state.value for each in reported if each.worth_a_line] == ["open"]
    assert driven.engine.counters.breaker_opened == 1


def test_what_always_fails_at_the_end_leaves_after_max_hold_one_at_a_time() -> None:
    driven = Driven(slots=4, retry=spent_after(1), breaker=BreakerRules(max_hold_s=30.0))
    driven.deliver(*notes(*range(60)))
    driven.tick()
    moved = until(driven, BreakerState.OPEN)
    began = driven.now
    while driven.engine.partitions[ORDERS].window.open:
        for slice_ in list(driven.out):
            if moved > 20:
                assert [len(each.messages) for each in driven.out] == [1]
            fail_all(driven, slice_)
        for each in driven.published(LONG_S):
            assert moved < 20 or driven.now - began >= 30.0
            driven.copied(each)
            moved += 1
        assert driven.now - began < 60.0
    assert moved == 60
    driven.tick()
    assert state(driven) is BreakerState.CLOSED


def test_a_new_record_ends_the_departures_after_max_hold() -> None:
    driven = Driven(slots=4, retry=spent_after(1), breaker=BreakerRules(max_hold_s=30.0))
    driven.deliver(*notes(*range(60)))
    driven.tick()
    until(driven, BreakerState.OPEN)
    while not driven.engine.breaker.samples.ends_hold:
        for slice_ in list(driven.out):
            fail_all(driven, slice_)
        driven.tick(LONG_S)
    driven.deliver(*notes(60))
    left = []
    for _ in range(100):
        for slice_ in list(driven.out):
            fail_all(driven, slice_)
        left += driven.published(LONG_S)
    assert len(left) <= 1  # the one that was being called


def test_a_user_releases_what_is_held() -> None:
    driven = opened(2, records=60)
    driven.engine.on_breaker_decision(release=True, now=driven.now)
    moved = 0
    while driven.engine.partitions[ORDERS].window.open:
        for slice_ in list(driven.out):
            fail_all(driven, slice_)
        for each in driven.published(LONG_S):
            driven.copied(each)
            moved += 1
        assert driven.now < 1100.0
    assert driven.engine.counters.dead_lettered == 60


def test_a_user_declares_an_outage() -> None:
    driven = worker(1)
    driven.engine.on_breaker_decision(release=False, now=driven.now)
    driven.tick()
    assert state(driven) is BreakerState.OPEN
