"""What becomes of the records of a batch that failed, as a whole or in part."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import failure, notes, spent_after
from window_consumer.engine.guards.breaker_state import BreakerRules, BreakerState
from window_consumer.engine.guards.stuck_calls import StallRules
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import Expired, Fatal, RetryLater, StalledError
from window_consumer.model.headers import Reason


def driven(most: int = 10, attempts: int = 3, **rules: Any) -> Driven:
    given: dict[str, Any] = {
        "window_cells": 8,
        "cell_records": 100,
        "retry": spent_after(attempts),
        **rules,
    }
    return Driven(batch=BatchRules(most, 1, 0.5), **given)


def end(it: Driven, slice_: Slice, errors: dict[int, BaseException], *held: int) -> None:
    """Let a call end in which these records failed."""
    for message in it.claim(slice_):
        if message.offset() in errors:
            slice_.deviate().failed.append((message, failure(errors[message.offset()])))
        elif message.offset() in held:
            slice_.deviate().held.append(message)
    it.finish(slice_)


def broken(*offsets: int) -> dict[int, BaseException]:
    return {offset: ValueError("broken") for offset in offsets}


def batches(it: Driven) -> list[tuple[int, list[int]]]:
    return [(s.call.attempt, [m.offset() for m in s.messages]) for s in it.out]


def test_those_that_failed_are_called_again_in_one_batch_and_the_others_are_done() -> None:
    it = driven()
    it.deliver(*notes(*range(5)))
    it.tick()
    end(it, it.out[0], broken(1, 3))
    it.tick()
    assert it.engine.counters.processed == 3
    assert it.out == []
    it.tick(1.0)
    assert batches(it) == [(2, [1, 3])]
    assert it.committable == 0
    it.finish(it.out[0])
    it.tick()
    assert it.committable == 5


def test_a_batch_that_failed_as_a_whole_comes_back_as_one_and_leaves_record_by_record() -> None:
    it = driven(attempts=2)
    it.deliver(*notes(*range(3)))
    it.tick()
    end(it, it.out[0], broken(0, 1, 2))
    it.tick(1.0)
    assert batches(it) == [(2, [0, 1, 2])]
    end(it, it.out[0], broken(0, 1, 2))
    left = it.published(0.1)
    assert [(each.message.offset(), each.reason) for each in left] == [
        (offset, Reason.RETRIES_EXHAUSTED) for offset in range(3)
    ]


def test_records_of_one_batch_are_not_parted_when_more_are_due_than_a_batch_holds() -> None:
    it = driven(most=3, slots=2, ordering="partition")
    it.deliver(*notes(*range(3)))
    it.tick()
    end(it, it.out[0], broken(0, 1, 2))
    it.tick(1.0)
    assert batches(it) == [(2, [0, 1, 2])]


def test_what_is_due_together_of_several_batches_is_called_in_one_list_as_far_as_it_fits() -> None:
    it = driven(most=4, slots=4)
    it.deliver(*notes(*range(12)))
    it.tick()
    for slice_, failing in zip(list(it.out), ((0, 1), (4, 5, 6), (9,)), strict=True):
        end(it, slice_, broken(*failing))
    it.tick(1.0)
    assert batches(it) == [(2, [0, 1]), (2, [4, 5, 6, 9])]


def test_each_failed_record_of_a_batch_goes_its_own_way() -> None:
    it = driven()
    it.deliver(*notes(*range(4)))
    it.tick()
    errors: dict[int, BaseException] = {
        0: Fatal("never"),
        1: RetryLater(5.0),
        2: Expired("old", "drop"),
    }
    end(it, it.out[0], errors)
    left = it.published(0.1)
    assert [(each.message.offset(), each.reason) for each in left] == [(0, Reason.FATAL)]
    assert it.engine.counters.expired == 1
    it.tick(2.0)
    assert it.out == []
    it.tick(3.0)
    assert batches(it) == [(2, [1])]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_lane_that_blocks_runs_its_later_records_again_with_the_failed_one(ordering: str) -> None:
    it = driven(ordering=ordering, retry=spent_after(3, on_failure="block"))
    it.deliver(*notes(*range(5), keys=[b"a", b"b", b"a", b"b", b"a"]))
    it.tick()
    end(it, it.out[0], broken(2))
    it.tick(1.0)
    again = [2, 4] if ordering == "key" else [2, 3, 4]
    assert batches(it) == [(2, again)]
    assert it.engine.counters.processed == 5 - len(again)
    it.finish(it.out[0])
    it.tick()
    assert it.committable == 5


def test_a_lane_that_blocks_does_so_until_its_first_failed_record_is_done() -> None:
    it = driven(ordering="key", retry=spent_after(1, on_failure="block"))
    it.deliver(*notes(0, 1, 2, keys=[b"a", b"a", b"a"]))
    it.tick()
    end(it, it.out[0], broken(0))
    for attempt in range(2, 6):
        it.tick(9.0)
        assert batches(it) == [(attempt, [0, 1, 2])]
        end(it, it.out[0], broken(0))
    it.deliver(*notes(3, keys=[b"a"]))
    it.tick(9.0)
    end(it, it.out[0], broken(1))
    it.tick(9.0)
    assert batches(it) == [(7, [1, 2])]
    it.finish(it.out[0])
    it.tick()
    assert batches(it) == [(1, [3])]


def test_in_a_lane_that_blocks_what_is_fatal_leaves_and_later_records_are_done() -> None:
    it = driven(ordering="key", retry=spent_after(3, on_failure="block"))
    it.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    it.tick()
    end(it, it.out[0], {0: Fatal("never")})
    left = it.published(0.1)
    assert [each.message.offset() for each in left] == [0]
    assert it.engine.counters.processed == 1


def test_with_overtake_the_later_records_of_a_lane_are_done_although_one_failed() -> None:
    it = driven(ordering="key")
    it.deliver(*notes(0, 1, 2, keys=[b"a", b"a", b"b"]))
    it.tick()
    end(it, it.out[0], broken(0))
    it.tick(1.0)
    assert batches(it) == [(2, [0])]
    assert it.engine.counters.processed == 2


def test_new_records_of_a_lane_wait_until_all_its_failed_ones_are_over() -> None:
    it = driven(ordering="key")
    it.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    it.tick()
    end(it, it.out[0], broken(0, 1))
    it.deliver(*notes(2, keys=[b"a"]))
    it.tick(1.0)
    assert batches(it) == [(2, [0, 1])]
    end(it, it.out[0], broken(1))
    it.tick(0.1)
    assert it.out == []
    it.tick(8.0)
    assert batches(it) == [(3, [1])]
    it.finish(it.out[0])
    it.tick()
    assert batches(it) == [(1, [2])]


def test_failed_records_of_a_lane_wait_equally_long_whatever_each_of_them_asks_for() -> None:
    it = driven(ordering="key")
    it.deliver(*notes(0, 1, 2, keys=[b"a", b"a", b"b"]))
    it.tick()
    errors: dict[int, BaseException] = {0: RetryLater(6.0), 1: ValueError("x"), 2: ValueError("y")}
    end(it, it.out[0], errors)
    it.tick(2.0)
    assert batches(it) == [(2, [2])]
    it.tick(4.0)
    assert batches(it) == [(2, [2]), (2, [0, 1])]


def test_a_record_that_was_held_back_waits_for_the_failed_one_of_its_lane() -> None:
    it = driven(ordering="key")
    it.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    it.tick()
    end(it, it.out[0], broken(0), 1)
    it.tick(1.0)
    assert batches(it) == [(2, [0])]
    it.finish(it.out[0])
    it.tick()
    assert batches(it) == [(1, [1])]


def test_a_record_that_is_held_back_again_comes_with_the_failed_one() -> None:
    it = driven(ordering="key")
    it.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    it.tick()
    end(it, it.out[0], broken(0, 1))
    it.tick(1.0)
    end(it, it.out[0], broken(0), 1)
    it.tick(9.0)
    assert batches(it) == [(3, [0, 1])]
    end(it, it.out[0], broken(0), 1)
    left = it.published(0.1)
    assert [each.message.offset() for each in left] == [0]
    assert batches(it) == [(3 + 0, [1])]


def test_of_a_batch_that_fails_at_most_twenty_records_leave_before_others_succeed() -> None:
    it = driven(attempts=1, most=1000, breaker=BreakerRules())
    it.deliver(*notes(*range(50)))
    it.tick()
    end(it, it.out[0], broken(*range(50)))
    left = [each for _ in range(5) for each in it.published(0.1)]
    assert len(left) == 20
    assert it.engine.breaker.state is BreakerState.HOLDING


def test_a_failed_batch_counts_once() -> None:
    it = driven(attempts=3, most=25, breaker=BreakerRules())
    it.deliver(*notes(*range(25)))
    it.tick()
    end(it, it.out[0], broken(*range(25)))
    it.tick()
    assert it.engine.breaker.calls_within_window(it.now) == (1, 1)
    assert it.engine.breaker.state is BreakerState.CLOSED


def test_a_batch_that_hangs_is_given_up_as_a_whole() -> None:
    it = driven(ordering="key", stall=StallRules(after_s=5.0))
    it.deliver(*notes(0, 1, 2, keys=[b"a", b"b", b"a"]))
    it.tick()
    it.claim(it.out[0])
    (stalled,) = it.tick(6.0).stalled
    assert (stalled.offset, stalled.abandon) == (0, True)
    it.engine.on_looked_at(stalled, failure(StalledError("hangs")), it.now)
    left = it.published(0.1)
    assert [(each.message.offset(), each.reason) for each in left] == [
        (offset, Reason.STALLED) for offset in range(3)
    ]
    for each in left:
        it.copied(each)
    it.deliver(*notes(3, 4, keys=[b"a", b"c"]))
    it.tick()
    assert batches(it)[1:] == [(1, [4])]
    hanging = it.out.pop(0)
    it.engine.on_completion(hanging, it.now)
    it.finish_all()
    assert it.committable == 5


def test_a_sample_is_a_batch_of_one() -> None:
    it = driven(attempts=1, breaker=BreakerRules(min_calls=2, cool_down_s=1.0), ordering="key")
    it.deliver(*notes(0, 1, keys=[b"a", b"b"]))
    it.tick()
    end(it, it.out[0], broken(0, 1))
    it.deliver(*notes(2, 3, keys=[b"c", b"c"]))
    it.tick(0.001)
    it.engine.breaker.hold(it.now)
    it.deliver(*notes(4, 5, keys=[b"d", b"e"]))
    sampled = [
        len(slice_.messages) for _ in range(3) for slice_ in it.tick(0.6).dispatch if slice_.is_new
    ]
    assert sampled == [1] * len(sampled) != []


def test_records_without_a_key_are_no_lane_that_blocks() -> None:
    it = driven(ordering="key", retry=spent_after(3, on_failure="block"))
    it.deliver(*notes(0, 1, 2, keys=[None, None, b"a"]))
    it.tick()
    end(it, it.out[0], broken(0))
    assert it.engine.counters.processed == 2


def test_a_lane_is_not_free_because_the_first_of_its_failed_records_was_dropped() -> None:
    it = driven(ordering="key")
    it.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    it.tick()
    end(it, it.out[0], {0: Expired("old", "drop"), 1: ValueError("broken")})
    it.deliver(*notes(2, keys=[b"a"]))
    it.tick(1.0)
    assert batches(it) == [(2, [1])]
