"""Calls that do not return and can be ended from outside: coroutines."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ONE_BY_ONE, ORDERS, failure, notes, spent_after
from tests.engine.test_stalls import hanging
from tests.golden_texts import Golden
from window_consumer.engine.decisions import Decisions
from window_consumer.engine.guards.breaker_state import BreakerRules, BreakerState
from window_consumer.engine.guards.stalls import ENDING_S
from window_consumer.engine.guards.stuck_calls import Stalled, StallRules
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import StalledError
from window_consumer.model.headers import Reason

AFTER_S = 30.0


def worker(
    *,
    action: Any = "move",
    max_abandoned: int = 1,
    ordering: str = "unordered",
    rules: Any = None,
    **retry: Any,
) -> Driven:
    return Driven(
        ordering=ordering,
        retry=spent_after(3, **retry),
        stall=StallRules(AFTER_S, action, max_abandoned, ends=True),
        **{**ONE_BY_ONE, **(rules or {})},
    )


def seen(driven: Driven, decisions: Decisions) -> list[Stalled]:
    """Say of each call that it still runs."""
    for stalled in decisions.stalled:
        answer = failure(StalledError("does not return"))
        driven.engine.on_looked_at(stalled, answer, driven.now)
        if stalled.abandon:
            driven.out.remove(stalled.slice_)
    return decisions.stalled


def ended(driven: Driven, slice_: Slice) -> None:
    """Let a call that was told to have ended."""
    (message,) = slice_.messages
    slice_.deviate().failed.append((message, failure(StalledError("does not return"))))
    driven.finish(slice_)


def stalled_worker(**given: Any) -> tuple[Driven, Slice]:
    driven = worker(**given)
    driven.deliver(*notes(0, 1, 2, keys=[b"k"] * 3))
    driven.tick()
    (slice_,) = hanging(driven, 0)
    return driven, slice_


def test_a_call_that_does_not_return_is_ended_and_its_record_leaves_as_stalled_when_it_has() -> (
    None
):
    driven, slice_ = stalled_worker()
    (stalled,) = seen(driven, driven.tick(AFTER_S))
    assert (stalled.end, stalled.abandon, stalled.offset) == (True, False, 0)
    assert driven.published() == []
    ended(driven, slice_)
    failed = driven.published_one()
    assert (failed.reason, failed.attempts) == (Reason.STALLED, 1)
    counters = driven.engine.counters
    assert (counters.stalled, counters.abandoned, counters.late) == (1, 0, 0)


def test_an_ended_record_climbs_to_the_next_level() -> None:
    driven, slice_ = stalled_worker(levels=(Level("10s", 10.0),))
    seen(driven, driven.tick(AFTER_S))
    ended(driven, slice_)
    failed = driven.published_one()
    assert failed.level == Level("10s", 10.0)


def test_with_order_the_lane_is_free_as_soon_as_the_call_has_ended_and_its_copy_is_acked() -> None:
    driven, slice_ = stalled_worker(ordering="key")
    seen(driven, driven.tick(AFTER_S))
    driven.tick(1.0)
    assert driven.running_offsets == [0]
    ended(driven, slice_)
    failed = driven.published_one()
    driven.copied(failed)
    driven.tick()
    assert driven.running_offsets == [1]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_blocking_lane_calls_the_record_again_after_its_call_was_ended(ordering: str) -> None:
    driven, slice_ = stalled_worker(ordering=ordering, on_failure="block")
    (stalled,) = seen(driven, driven.tick(AFTER_S))
    assert stalled.end
    ended(driven, slice_)
    assert driven.published() == []
    assert driven.running_offsets == []
    driven.tick(1.0)
    assert driven.running_offsets == [0]
    assert driven.out[0].call.attempt == 2


def test_a_call_is_only_reported_where_the_configuration_says_so() -> None:
    driven, _ = stalled_worker(action="report")
    (stalled,) = seen(driven, driven.tick(AFTER_S))
    assert (stalled.end, stalled.abandon) == (False, False)
    assert [each.end for each in seen(driven, driven.tick(AFTER_S))] == [False]


def test_a_call_that_is_ending_is_not_ended_again() -> None:
    driven, _ = stalled_worker()
    assert len(seen(driven, driven.tick(AFTER_S))) == 1
    assert seen(driven, driven.tick(ENDING_S - 1.0)) == []


def test_a_call_that_has_not_ended_in_time_is_abandoned() -> None:
    driven, slice_ = stalled_worker()
    seen(driven, driven.tick(AFTER_S))
    (stalled,) = seen(driven, driven.tick(ENDING_S))
    assert (stalled.end, stalled.abandon) == (False, True)
    failed = driven.published_one()
    assert failed.reason is Reason.STALLED
    driven.copied(failed)
    assert driven.committable == 3
    slice_.elapsed = 99.0
    driven.engine.on_completion(slice_, driven.now)
    assert [each.offset for each in driven.tick().returned] == [0]
    assert (driven.engine.counters.abandoned, driven.engine.counters.late) == (1, 1)


def test_a_blocking_lane_waits_for_a_call_that_does_not_end() -> None:
    driven, slice_ = stalled_worker(ordering="key", on_failure="block")
    seen(driven, driven.tick(AFTER_S))
    assert seen(driven, driven.tick(ENDING_S)) == []
    (stalled,) = seen(driven, driven.tick(AFTER_S))
    assert (stalled.end, stalled.abandon) == (False, False)
    assert driven.running_offsets == [0]
    ended(driven, slice_)
    driven.tick(1.0)
    assert driven.running_offsets == [0]


def test_more_calls_than_may_be_abandoned_can_be_ended() -> None:
    driven = worker(max_abandoned=1)
    driven.deliver(*notes(*range(4)))
    driven.tick()
    slices = hanging(driven, *range(4))
    assert len(seen(driven, driven.tick(AFTER_S))) == 4
    for slice_ in slices:
        ended(driven, slice_)
    assert driven.tick().stop is None
    assert driven.tick(AFTER_S).stop is None


def test_the_worker_stops_when_more_calls_refuse_to_end_than_may_be_abandoned(
    golden: Golden,
) -> None:
    driven = worker(max_abandoned=1)
    driven.deliver(*notes(*range(4)))
    driven.tick()
    hanging(driven, 0, 1)
    seen(driven, driven.tick(AFTER_S))
    stop = driven.tick(ENDING_S).stop
    assert stop is not None
    assert "2 handler calls" in str(stop)
    golden(str(stop))


def test_what_a_slot_has_not_started_is_not_ended_with_its_call() -> None:
    driven = worker(rules={"slots": 1})
    driven.engine.dispatcher.length.records = 3
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    (slice_,) = driven.out
    driven.claim(slice_, 1)
    driven.engine.dispatcher._stuck.remove(slice_)  # nobody takes anything back before
    seen(driven, driven.tick(AFTER_S))
    assert [m.offset() for m in slice_.messages] == [0]
    ended(driven, slice_)
    driven.tick()
    driven.finish_all()
    assert driven.engine.counters.processed == 2


def test_a_slot_that_has_moved_on_in_the_meantime_is_left_alone() -> None:
    driven, slice_ = stalled_worker()
    for stalled in driven.tick(AFTER_S).stalled:
        driven.engine.on_looked_at(stalled, None, driven.now)
    driven.finish(slice_)
    assert driven.tick(ENDING_S).stalled == []
    assert driven.committable == 3


def test_a_call_of_a_partition_that_was_lost_meanwhile_changes_nothing() -> None:
    driven, slice_ = stalled_worker()
    seen(driven, driven.tick(AFTER_S))
    driven.engine.on_lost([ORDERS], driven.now)
    ended(driven, slice_)
    assert driven.published(ENDING_S) == []
    assert driven.engine.counters.late == 1


def test_a_head_that_holds_up_a_full_window_is_ended_where_records_may_overtake() -> None:
    driven = worker()
    driven.engine.stalls._relief._tokens = 3.0
    driven.deliver(*notes(*range(12)))
    driven.tick()
    (slice_,) = hanging(driven, 0)
    (stalled,) = seen(driven, driven.tick(6.0))
    assert (stalled.end, stalled.is_relief) == (True, True)
    assert seen(driven, driven.tick(1.0)) == []
    ended(driven, slice_)
    assert driven.published()[0].reason is Reason.STALLED


def test_calls_that_were_ended_count_as_failed_for_the_breaker() -> None:
    breaker = BreakerRules(min_calls=4)
    driven = worker(rules={"breaker": breaker})
    driven.deliver(*notes(*range(4)))
    driven.tick()
    slices = hanging(driven, *range(4))
    seen(driven, driven.tick(AFTER_S))
    for slice_ in slices:
        ended(driven, slice_)
    assert driven.tick().breaker[-1].state is BreakerState.HOLDING


def test_an_interrupted_call_leaves_its_record_open() -> None:
    driven, slice_ = stalled_worker()
    driven.engine.on_revoking([ORDERS], driven.now)
    assert driven.engine.work.running([ORDERS]) == [slice_]
    driven.claim(slice_)
    slice_.deviate().held.append(slice_.messages[0])
    driven.finish(slice_)
    assert driven.engine.work.running([ORDERS]) == []
    assert driven.engine.work.unfinished() == 1
    (commit,), outlived = driven.engine.on_revoked([ORDERS], driven.now)
    assert (commit.next_offset, outlived) == (0, [])


def retrying(**given: Any) -> tuple[Driven, Slice]:
    """Return a worker that calls records again whose calls were ended."""
    return stalled_worker(action="retry", retries_stalled=True, **given)


def test_with_retry_the_record_of_an_ended_call_is_called_again_before_it_climbs() -> None:
    level = Level("10s", 10.0)
    driven, slice_ = retrying(levels=(level,))
    for attempt in (2, 3):
        seen(driven, driven.tick(AFTER_S))
        ended(driven, slice_)
        assert driven.published() == []
        driven.tick(10.0)
        (slice_,) = [each for each in driven.out if 0 in {m.offset() for m in each.messages}]
        assert slice_.call.attempt == attempt
        driven.claim(slice_)
    seen(driven, driven.tick(AFTER_S))
    ended(driven, slice_)
    failed = driven.published_one()
    assert (failed.reason, failed.level, failed.attempts) == (Reason.STALLED, level, 3)


def test_with_retry_a_call_that_does_not_end_is_not_made_again_beside_it() -> None:
    driven, _ = retrying()
    seen(driven, driven.tick(AFTER_S))
    (abandoned,) = seen(driven, driven.tick(ENDING_S))
    assert abandoned.abandon
    failed = driven.published_one()
    assert (failed.reason, failed.attempts) == (Reason.STALLED, 1)
