"""Batches on which the process of a slot died: halved until the culprit is alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, failure, notes
from window_consumer.engine.guards.breaker_state import BreakerRules, BreakerState
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.batch_bisection import parted
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.rate_limit import RateRules
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import PartialFailure, ProcessDiedError
from window_consumer.model.headers import Reason

RETRY: dict[str, Any] = {"attempts": 3, "crash_attempts": 3, "backoff_min_s": 1.0}
KEYS = {"key": [b"a"] * 8, "partition": None, "unordered": None}


def driven(batch: tuple[int, int, float] = (100, 1, 0.5), **rules: Any) -> Driven:
    retry = RetryRules(**{**RETRY, **rules.pop("retry", {})})
    given: dict[str, Any] = {"window_cells": 8, "cell_records": 100, "retry": retry, **rules}
    return Driven(batch=BatchRules(*batch), **given)


def die(it: Driven, slice_: Slice) -> None:
    """Let the process of a slot die on a batch."""
    died = failure(ProcessDiedError("died"))
    it.claim(slice_)
    slice_.deviate().failed.extend((message, died) for message in slice_.messages)
    it.finish(slice_)


def out(it: Driven) -> list[tuple[int, list[int]]]:
    return [(s.call.attempt, [m.offset() for m in s.messages]) for s in it.out]


def run(it: Driven, *deadly: int) -> list[list[int]]:
    """Run everything; return the batches that ended their process, in this order."""
    deaths: list[list[int]] = []
    for _ in range(200):
        if it.out:
            slice_ = it.out[0]
            offsets = [message.offset() for message in slice_.messages]
            if set(deadly).isdisjoint(offsets):
                it.finish(slice_)
            else:
                deaths.append(offsets)
                die(it, slice_)
        else:
            it.tick(8.0)
        it.tick()
        for failed in it.last_published:
            assert failed.reason is Reason.CRASHED
            it.copied(failed)
        if not it.engine.partitions[ORDERS].window.open:
            break
    return deaths


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_a_batch_on_which_its_process_died_is_halved_until_the_culprit_is_alone(
    ordering: str,
) -> None:
    it = driven(ordering=ordering)
    it.deliver(*notes(*range(8), keys=KEYS[ordering]))
    it.tick()
    deaths = run(it, 5)
    assert deaths == [list(range(8)), [4, 5, 6, 7], [4, 5], [5], [5], [5]]
    counters = it.engine.counters
    assert (counters.processed, counters.dead_lettered) == (7, 1)
    assert it.committable == 8


@pytest.mark.parametrize("culprits", [(0,), (7,), (0, 7), (2, 3), range(8)])
@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_only_culprits_are_charged_however_many_there_are(
    ordering: str, culprits: tuple[int, ...]
) -> None:
    it = driven(ordering=ordering)
    it.deliver(*notes(*range(8), keys=KEYS[ordering]))
    it.tick()
    deaths = run(it, *culprits)
    alone = [offsets[0] for offsets in deaths if len(offsets) == 1]
    assert sorted(alone) == sorted([*culprits] * 3)
    assert it.engine.counters.dead_lettered == len(culprits)
    assert it.engine.counters.processed == 8 - len(culprits)


def test_halves_go_out_at_once_however_few_they_are() -> None:
    it = driven((8, 8, 60.0))
    it.deliver(*notes(*range(8)))
    it.tick()
    die(it, it.out[0])
    it.tick()
    assert out(it) == [(1, [0, 1, 2, 3]), (1, [4, 5, 6, 7])]


def test_halves_keep_to_themselves_while_others_wait_for_company() -> None:
    it = driven((8, 4, 60.0), slots=1)
    it.deliver(*notes(*range(8)))
    it.tick()
    it.deliver(*notes(8, 9))
    die(it, it.out[0])
    it.tick()
    assert out(it) == [(1, [0, 1, 2, 3]), (1, [4, 5, 6, 7])]


def test_lanes_stay_whole_in_halves_that_run_beside_each_other() -> None:
    it = driven(ordering="key")
    it.deliver(*notes(*range(6), keys=[b"a", b"b", b"a", b"c", b"b", b"c"]))
    it.tick()
    die(it, it.out[0])
    it.tick()
    assert out(it) == [(1, [0, 2]), (1, [1, 3, 4, 5])]
    it.deliver(*notes(6, 7, keys=[b"a", b"d"]))
    it.tick()
    assert out(it)[2:] == [(1, [7])]
    it.finish(it.out[0])
    it.tick()
    assert out(it)[2:] == [(1, [6])]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_the_second_half_of_a_lane_waits_until_the_first_one_is_finished(ordering: str) -> None:
    it = driven(ordering=ordering)
    it.deliver(*notes(*range(4), keys=[b"a"] * 4))
    it.tick()
    die(it, it.out[0])
    it.deliver(*notes(4, keys=[b"a"]))
    it.tick()
    assert out(it) == [(1, [0, 1])]
    it.fail(it.out[0], 0)
    it.tick()
    assert out(it) == []
    it.tick(1.0)
    assert out(it) == [(2, [0])]
    it.finish(it.out[0])
    it.tick()
    assert out(it) == [(1, [2, 3])]
    it.finish(it.out[0])
    it.tick()
    assert out(it) == [(1, [4])]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_nothing_enters_a_lane_between_its_halves(ordering: str) -> None:
    it = driven(ordering=ordering)
    it.deliver(*notes(*range(4), keys=[b"a"] * 4))
    it.tick()
    die(it, it.out[0])
    it.deliver(*notes(4, keys=[b"a"]))
    for expected in ([0, 1], [2, 3], [4]):
        it.tick()
        assert out(it) == [(1, expected)]
        it.finish(it.out[0])


def test_a_record_that_was_held_back_in_the_first_half_goes_before_the_second() -> None:
    it = driven(ordering="key")
    it.deliver(*notes(*range(4), keys=[b"a"] * 4))
    it.tick()
    die(it, it.out[0])
    it.tick()
    (first,) = it.out
    messages = it.claim(first)
    first.deviate().failed.append((messages[0], failure()))
    first.deviate().held.append(messages[1])
    it.finish(first)
    it.tick()
    assert out(it) == []
    it.tick(1.0)
    it.finish(it.out[0])
    it.tick()
    assert out(it) == [(1, [1, 2, 3])]


def test_a_batch_that_is_called_again_is_halved_without_another_attempt() -> None:
    it = driven(ordering="key")
    it.deliver(*notes(*range(4), keys=[b"a", b"a", b"b", b"b"]))
    it.tick()
    it.fail(it.out[0], 0, 1, 2, 3, error=PartialFailure(failed=[]))
    it.tick(1.0)
    assert out(it) == [(2, [0, 1, 2, 3])]
    die(it, it.out[0])
    it.tick()
    assert out(it) == [(2, [0, 1]), (2, [2, 3])]
    die(it, it.out[0])
    it.tick()
    assert out(it) == [(2, [2, 3]), (2, [0])]
    it.finish(it.out[1])
    it.tick()
    assert out(it) == [(2, [2, 3]), (2, [1])]
    die(it, it.out[1])
    it.finish(it.out[0])
    it.tick(8.0)
    assert out(it) == [(3, [1])]


def test_a_record_that_ends_processes_is_called_alone() -> None:
    it = driven((2, 1, 0.5), slots=1)
    it.deliver(*notes(0, 1))
    it.tick()
    die(it, it.out[0])
    it.tick()
    die(it, it.out[0])
    it.fail(it.out[0], 1)
    it.tick(8.0)
    assert out(it) == [(2, [0])]
    it.finish(it.out[0])
    it.tick()
    assert out(it) == [(2, [1])]


def test_halves_wait_for_their_rate() -> None:
    it = driven(rate=RateRules(per_s=1.0, burst=4))
    it.deliver(*notes(*range(4)))
    it.tick()
    die(it, it.out[0])
    it.tick()
    assert out(it) == []
    assert it.engine.wait_s(it.now, 9.0) <= 1.0
    it.tick(2.0)
    assert out(it) == [(1, [0, 1])]
    it.tick(2.0)
    assert out(it) == [(1, [0, 1]), (1, [2, 3])]


def test_a_death_in_a_batch_is_no_outage_for_the_breaker() -> None:
    it = driven(breaker=BreakerRules(min_calls=2))
    it.deliver(*notes(*range(8)))
    it.tick()
    die(it, it.out[0])
    it.tick()
    assert it.engine.breaker.state is BreakerState.CLOSED


def test_a_sample_that_ended_its_process_says_nothing_and_its_half_is_the_next_one() -> None:
    it = driven(ordering="partition", retry={"attempts": 9}, breaker=BreakerRules(cool_down_s=1.0))
    it.deliver(*notes(*range(4)))
    it.tick()
    it.fail(it.out[0], *range(4))
    it.engine.breaker.hold(it.now)
    it.tick()
    for sampled in ([0, 1, 2, 3], [0, 1]):
        it.tick(2.0)
        assert out(it) == [(2, sampled)]
        assert it.engine.breaker.state is BreakerState.OPEN
        die(it, it.out[0])
    it.tick(2.0)
    assert out(it) == [(2, [0])]
    it.finish(it.out[0])
    assert it.engine.breaker.state is BreakerState.HALF_OPEN
    it.tick()
    assert out(it) == [(2, [1])]
    it.finish(it.out[0])
    it.tick()
    assert out(it) == [(2, [2, 3])]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_what_waits_is_put_back_in_its_order_when_nothing_may_start(ordering: str) -> None:
    it = driven(ordering=ordering, slots=1)
    it.deliver(*notes(*range(8), keys=[b"a"] * 8))
    it.tick()
    die(it, it.out[0])
    it.tick()
    die(it, it.out[0])
    it.tick()
    assert out(it) == [(1, [0, 1])]
    it.engine.on_stood_still(5.0, it.now)
    it.out.clear()
    (slice_,) = it.engine.dispatcher.out
    assert slice_.messages == []
    it.engine.on_completion(slice_, it.now)
    it.engine.dispatcher.longest = 4
    it.tick(5.0)
    assert out(it) == [(1, [0, 1, 2, 3])]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_first_half_that_is_taken_back_goes_before_the_second(ordering: str) -> None:
    it = driven(ordering=ordering)
    it.deliver(*notes(*range(4), keys=[b"a"] * 4))
    it.tick()
    die(it, it.out[0])
    it.tick()
    (first,) = it.out
    assert it.take_back(first) == 2
    it.finish(first)
    it.tick()
    assert out(it) == [(1, [0, 1, 2, 3])]


def test_what_is_put_back_starts_although_nothing_else_comes_back() -> None:
    it = driven()
    it.deliver(*notes(*range(4)))
    it.tick()
    die(it, it.out[0])
    it.engine.dispatcher.new.remove(it.engine.partitions[ORDERS])
    it.engine.on_stood_still(5.0, it.now)
    it.tick(5.0)
    assert out(it) == [(1, [0, 1, 2, 3])]


def test_halves_of_a_partition_that_is_given_up_are_forgotten() -> None:
    it = driven(ordering="partition")
    it.deliver(*notes(*range(4)))
    it.tick()
    die(it, it.out[0])
    it.engine.on_lost([ORDERS], it.now)
    it.tick(9.0)
    assert out(it) == []


def test_a_batch_that_dies_while_its_partition_is_given_up_stays_open() -> None:
    it = driven()
    it.deliver(*notes(*range(4)))
    it.tick()
    it.claim(it.out[0])
    it.engine.on_revoking([ORDERS], it.now)
    die(it, it.out[0])
    it.tick(9.0)
    assert out(it) == []
    assert it.committable == 0


def test_parts_are_never_empty_and_share_a_lane_only_if_it_is_the_only_one() -> None:
    seeded = random.Random(4)
    for _ in range(2000):
        lanes = [seeded.choice((None, b"a", b"b", b"c")) for _ in range(seeded.randint(2, 12))]
        first, second = parted(lanes)
        assert first
        assert second
        assert sorted([*first, *second]) == list(range(len(lanes)))
        shared = {lanes[i] for i in first} & {lanes[i] for i in second} - {None}
        assert not shared or len(set(lanes)) == 1


def test_a_second_half_that_was_called_before_waits_whatever_is_put_back() -> None:
    it = driven(ordering="key")
    it.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    it.tick()
    it.fail(it.out[0], 0, 1)
    it.tick(1.0)
    die(it, it.out[0])
    it.tick()
    assert out(it) == [(2, [0])]
    it.engine.dispatcher.release_all_gathered()
    it.fail(it.out[0], 0)
    it.tick()
    assert out(it) == []
    it.tick(8.0)
    assert out(it) == [(3, [0])]
