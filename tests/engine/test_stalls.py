from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.laddered import RETRIED, Laddered
from tests.engine.support import ONE_BY_ONE, ORDERS, Note, failure, notes, spent_after
from tests.golden_texts import Golden
from window_consumer.engine.decisions import Decisions
from window_consumer.engine.guards.breaker_state import BreakerRules, BreakerState
from window_consumer.engine.guards.head_of_line import DEADLINE_S, MOST_TOKENS, SUCCESSES_PER_TOKEN
from window_consumer.engine.guards.stuck_calls import StallRules
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.snapshot import take_snapshot
from window_consumer.model.errors import CallsHangError, StalledError
from window_consumer.model.headers import Reason

AFTER_S = 30.0


def worker(
    *, action: Any = "move", max_abandoned: int = 2, ordering: str = "unordered", **retry: Any
) -> Driven:
    return Driven(
        ordering=ordering,
        retry=spent_after(3, **retry),
        stall=StallRules(AFTER_S, action, max_abandoned),
        **ONE_BY_ONE,
    )


def look(driven: Driven, decisions: Decisions, *, is_over: bool = False) -> list[int]:
    """Answer what the Engine wants to know of stalled calls; return the offsets it asked for."""
    for stalled in decisions.stalled:
        answer = None if is_over else failure(StalledError("does not return"))
        driven.engine.on_looked_at(stalled, answer, driven.now)
        if stalled.abandon and answer is not None:
            driven.out.remove(stalled.slice_)
    return [stalled.offset for stalled in decisions.stalled]


def hanging(driven: Driven, *offsets: int) -> list[Slice]:
    """Let the calls for these records hang until they stall, all others return."""
    found = []
    for _ in range(20):
        for slice_ in list(driven.out):
            if slice_ in found:
                continue
            if slice_.messages[0].offset() in offsets:
                driven.claim(slice_, 1)
                found.append(slice_)
            else:
                driven.finish(slice_)
        driven.tick()
    return found


def late(driven: Driven, slice_: Slice) -> None:
    slice_.elapsed = 99.0
    driven.engine.on_completion(slice_, driven.now)


def test_a_call_that_does_not_return_is_looked_at_after_its_time() -> None:
    driven = worker()
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    hanging(driven, 0)
    assert driven.tick(AFTER_S - 0.1).stalled == []
    (stalled,) = driven.tick(0.6).stalled
    assert (stalled.name, stalled.offset, stalled.attempt, stalled.abandon) == (ORDERS, 0, 1, True)
    assert stalled.seconds == pytest.approx(AFTER_S + 0.5)


def test_an_abandoned_call_is_reported_and_its_record_leaves_as_stalled() -> None:
    driven = worker()
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    (slice_,) = hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    assert slice_.call.cancelled
    failed = driven.published_one()
    assert (failed.reason, failed.attempts) == (Reason.STALLED, 1)
    driven.copied(failed)
    assert driven.committable == 3
    counters = driven.engine.counters
    assert (counters.stalled, counters.abandoned, counters.dead_lettered) == (1, 1, 1)


def test_a_record_that_has_left_is_no_lag_though_its_call_still_runs() -> None:
    driven = worker(when_spent="drop")
    driven.deliver(Note(0, written_ms=1))
    driven.tick()
    hanging(driven, 0)
    assert seconds_behind(driven) > 0
    look(driven, driven.tick(AFTER_S))
    assert driven.engine.dispatcher.abandoned
    assert seconds_behind(driven) == 0


def seconds_behind(driven: Driven) -> float:
    (partition,) = take_snapshot(driven.engine, driven.now, driven.wall_ms).partitions
    return partition.lag.seconds


def test_a_stalled_record_climbs_to_the_next_level() -> None:
    driven = worker(levels=(Level("10s", 10.0),))
    driven.deliver(*notes(0))
    driven.tick()
    hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    failed = driven.published_one()
    assert failed.level == Level("10s", 10.0)


def test_a_stalled_record_is_dropped_where_spent_ones_are() -> None:
    driven = worker(when_spent="drop")
    driven.deliver(*notes(0))
    driven.tick()
    hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    assert (driven.committable, driven.engine.counters.dropped) == (1, 1)


def test_a_list_of_fatal_classes_does_not_make_a_stall_fatal() -> None:
    driven = worker(fatal=(Exception,))
    driven.deliver(*notes(0))
    driven.tick()
    hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    assert driven.published()[0].reason is Reason.STALLED


@pytest.mark.parametrize("first_over", ["retry", "copy"])
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_lane_waits_for_all_of_its_records_that_failed(ordering: str, first_over: str) -> None:
    driven = Driven(slots=1, ordering=ordering, retry=spent_after(3), stall=StallRules(AFTER_S))
    driven.engine.dispatcher.length.records = 3
    driven.deliver(*notes(0, 1, 2, keys=[b"k"] * 3))
    driven.tick()
    (slice_,) = driven.out
    (first, _) = driven.claim(slice_, 2)
    slice_.deviate().failed.append((first, failure()))
    # The slot is held up between claiming the second record and holding it back.
    driven.tick(1.0)
    assert look(driven, driven.tick(AFTER_S)) == [1]
    late(driven, slice_)
    stalled = driven.published_one(AFTER_S)
    (again,) = driven.out
    assert (stalled.message.offset(), again.messages) == (1, [first])
    if first_over == "retry":
        driven.finish(again)
        driven.tick()
        assert driven.running_offsets == []
        driven.copied(stalled)
    else:
        driven.copied(stalled)
        driven.tick()
        assert driven.running_offsets == [0]
        driven.finish(again)
    driven.tick()
    assert driven.running_offsets == [2]


def test_the_slot_of_an_abandoned_call_is_free_again() -> None:
    driven = worker(max_abandoned=4)
    driven.deliver(*notes(*range(12)))
    driven.tick()
    hanging(driven, 0, 1, 2, 3)
    assert driven.engine.dispatcher.idle_slots == 0
    look(driven, driven.tick(AFTER_S))
    assert driven.engine.dispatcher.idle_slots == 4
    assert not driven.engine.work.busy([ORDERS])
    assert [each.message.offset() for each in driven.published()] == [0, 1, 2, 3]


@pytest.mark.parametrize("with_error", [False, True])
def test_the_late_result_of_an_abandoned_call_changes_nothing(*, with_error: bool) -> None:
    driven = worker()
    driven.deliver(*notes(0))
    driven.tick()
    (slice_,) = hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    if with_error:
        slice_.deviate().failed.append((slice_.messages[0], failure()))
    late(driven, slice_)
    (news,) = driven.tick(10.0).returned
    assert (news.offset, driven.engine.counters.late) == (0, 1)
    assert (driven.engine.counters.processed, driven.committable) == (0, 0)
    assert driven.engine.dispatcher.abandoned == {}


def test_a_call_that_has_just_returned_is_not_abandoned() -> None:
    driven = worker()
    driven.deliver(*notes(0))
    driven.tick()
    (slice_,) = hanging(driven, 0)
    look(driven, driven.tick(AFTER_S), is_over=True)
    driven.finish(slice_)
    assert (driven.committable, driven.engine.counters.stalled) == (1, 0)


def test_one_more_than_may_be_abandoned_stops_the_worker(golden: Golden) -> None:
    driven = worker(max_abandoned=2)
    driven.deliver(*notes(*range(6)))
    driven.tick()
    hanging(driven, 0, 1)
    decisions = driven.tick(AFTER_S)
    assert len(look(driven, decisions)) == 2
    assert decisions.stop is None
    driven.tick()
    driven.deliver(*notes(6))
    driven.tick()
    hanging(driven, 6)
    decisions = driven.tick(AFTER_S)
    assert type(decisions.stop) is CallsHangError
    golden(str(decisions.stop))
    assert "stall.max_abandoned is 2" in str(decisions.stop)
    assert [stalled.abandon for stalled in decisions.stalled] == [False]


def test_an_abandoned_call_that_returned_makes_room_for_another() -> None:
    driven = worker(max_abandoned=1)
    driven.deliver(*notes(*range(2)))
    driven.tick()
    (slice_,) = hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    late(driven, slice_)
    driven.deliver(*notes(2))
    driven.tick()
    hanging(driven, 2)
    decisions = driven.tick(AFTER_S)
    assert (look(driven, decisions), decisions.stop) == ([2], None)


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_the_lane_of_an_abandoned_call_waits_until_the_thread_has_ended(ordering: str) -> None:
    driven = worker(ordering=ordering)
    driven.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    driven.tick()
    (slice_,) = hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    failed = driven.published_one()
    driven.copied(failed)
    assert driven.tick(100.0).dispatch == []
    assert driven.engine.work.unfinished() == 1
    late(driven, slice_)
    assert [each.messages[0].offset() for each in driven.tick().dispatch] == [1]
    driven.finish_all()
    assert driven.committable == 2


def test_the_lane_waits_for_the_ack_as_well_as_for_the_thread() -> None:
    driven = worker(ordering="key")
    driven.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    driven.tick()
    (slice_,) = hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    failed = driven.published_one()
    late(driven, slice_)
    assert driven.tick(1.0).dispatch == []
    driven.copied(failed)
    assert len(driven.tick().dispatch) == 1


def test_other_lanes_go_on_beside_an_abandoned_call() -> None:
    driven = worker(ordering="key")
    driven.deliver(*notes(0, 1, 2, keys=[b"a", b"b", b"a"]))
    driven.tick()
    hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    assert driven.engine.counters.processed == 1


def test_a_blocking_worker_only_reports() -> None:
    driven = worker(ordering="key", on_failure="block")
    driven.deliver(*notes(0, keys=[b"a"]))
    driven.tick()
    hanging(driven, 0)
    decisions = driven.tick(AFTER_S)
    assert [stalled.abandon for stalled in decisions.stalled] == [False]
    look(driven, decisions)
    assert driven.published() == []
    assert driven.engine.counters.abandoned == 0


def test_a_reported_call_is_reported_again_and_counted_once() -> None:
    driven = worker(action="report", max_abandoned=0)
    driven.deliver(*notes(0))
    driven.tick()
    (slice_,) = hanging(driven, 0)
    reported = [look(driven, driven.tick(1.0)) for _ in range(95)]
    assert sum(offsets == [0] for offsets in reported) == 3
    assert driven.engine.counters.stalled == 1
    assert driven.last.stop is None
    driven.finish(slice_)
    assert driven.committable == 1


def test_a_call_of_a_record_that_failed_before_is_abandoned_as_well() -> None:
    driven = worker()
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick(2.0)
    hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    failed = driven.published_one()
    assert (failed.reason, failed.attempts) == (Reason.STALLED, 2)


def test_unstarted_and_finished_records_of_its_slice_are_not_lost() -> None:
    driven = worker()
    driven.engine.dispatcher.length.records = 3
    driven.engine.dispatcher.length.cost_s = 1e-3
    driven.deliver(*notes(0, 1, 2, 3, 4, 5))
    driven.tick()
    slice_ = driven.out[0]
    driven.claim(slice_, 2)
    slice_.deviate()
    look(driven, driven.tick(AFTER_S))
    left: list[FailedRecord] = []
    for _ in range(10):
        left += driven.published(0.01)
        for each in list(driven.out):
            driven.finish(each)
    for failed in left:
        driven.copied(failed)
    assert [failed.message.offset() for failed in left] == [1]
    assert driven.committable == 6


def test_calls_of_a_process_that_was_frozen_are_not_taken_for_stalled() -> None:
    driven = worker()
    driven.deliver(*notes(0))
    driven.tick()
    hanging(driven, 0)
    driven.now += 1000.0
    driven.engine.on_stood_still(1.0, driven.now)
    assert driven.tick().stalled == []
    assert len(driven.tick(AFTER_S).stalled) == 1


def test_a_revoke_does_not_wait_for_abandoned_calls_and_names_them() -> None:
    driven = worker(ordering="key")
    driven.deliver(*notes(0, keys=[b"k"]))
    driven.tick()
    (slice_,) = hanging(driven, 0)
    look(driven, driven.tick(AFTER_S))
    failed = driven.published_one()
    driven.copied(failed)
    driven.engine.on_revoking([ORDERS], driven.now)
    assert not driven.engine.work.busy([ORDERS])
    commits, outlived = driven.engine.on_revoked([ORDERS], driven.now)
    assert commits[0].next_offset == 1
    assert [(each.offset, each.key, each.abandoned) for each in outlived] == [(0, b"k", True)]
    late(driven, slice_)
    assert driven.engine.counters.late == 1


def test_a_stalled_call_counts_for_the_breaker() -> None:
    driven = Driven(
        retry=spent_after(3),
        stall=StallRules(AFTER_S, "move", 10),
        breaker=BreakerRules(min_calls=3, window_s=1000.0),
        **ONE_BY_ONE,
    )
    driven.deliver(*notes(*range(4)))
    driven.tick()
    hanging(driven, 0, 1, 2, 3)
    look(driven, driven.tick(AFTER_S))
    assert driven.published() == []
    assert driven.engine.breaker.state is BreakerState.HOLDING


def almost_full(**rules: Any) -> tuple[Driven, Slice]:
    """A window that is full of finished records but for its first, which hangs."""
    driven = Driven(
        slots=4,
        window_cells=4,
        cell_records=SUCCESSES_PER_TOKEN,
        retry=spent_after(3, **{k: rules.pop(k) for k in ("on_failure",) if k in rules}),
        stall=StallRules(AFTER_S * 100, rules.pop("action", "move"), 4),
        **rules,
    )
    driven.deliver(*notes(*range(4 * SUCCESSES_PER_TOKEN), keys=_keys(4 * SUCCESSES_PER_TOKEN)))
    driven.tick()
    hung: Slice | None = None
    while driven.engine.partitions[ORDERS].window.open > 1:
        for slice_ in list(driven.out):
            if slice_ is hung:
                continue
            if slice_.messages[0].offset() == 0 and hung is None:
                assert len(slice_.messages) == 1
                driven.claim(slice_, 1)
                hung = slice_
            else:
                driven.finish(slice_, elapsed=1e-6)
        driven.tick(1e-6)
    assert hung is not None
    return driven, hung


def _keys(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


def test_a_slow_head_is_moved_when_its_window_is_almost_full_and_done() -> None:
    driven, slice_ = almost_full()
    assert driven.tick(DEADLINE_S - 1.0).stalled == []
    decisions = driven.tick(2.0)
    (stalled,) = decisions.stalled
    assert (stalled.offset, stalled.abandon, stalled.is_relief) == (0, True, True)
    look(driven, decisions)
    assert slice_.call.cancelled
    assert driven.published()[0].reason is Reason.STALLED
    assert driven.engine.counters.stalled == 0


@pytest.mark.parametrize(
    "rules", [{"action": "report"}, {"ordering": "key", "on_failure": "block"}], ids=str
)
def test_relief_moves_nothing_where_calls_are_only_reported(rules: Any) -> None:
    driven, _ = almost_full(**rules)
    assert driven.tick(DEADLINE_S * 2).stalled == []


def test_relief_moves_nothing_where_nothing_was_earned() -> None:
    driven, _ = almost_full()
    driven.engine.stalls._relief._counted = driven.engine.counters.processed
    assert driven.tick(DEADLINE_S * 2).stalled == []


def test_relief_moves_nothing_while_calls_usually_take_as_long() -> None:
    driven, _ = almost_full()
    driven.engine.dispatcher.length.cost_s = 1.0
    assert driven.tick(DEADLINE_S * 2).stalled == []
    assert len(driven.tick(DEADLINE_S * 3).stalled) == 1


def test_relief_moves_nothing_while_the_window_has_room_or_much_is_open() -> None:
    driven = Driven(slots=4, window_cells=4, cell_records=25, stall=StallRules(3000.0, "move", 4))
    driven.engine.counters.processed = 10**6
    driven.deliver(*notes(*range(80)))
    driven.tick()
    hung = [s for s in driven.out if s.messages[0].offset() == 0]
    driven.claim(hung[0], 1)
    while driven.engine.partitions[ORDERS].window.open > 1:
        for slice_ in list(driven.out):
            if slice_ not in hung:
                driven.finish(slice_)
        driven.tick()
    assert driven.tick(DEADLINE_S * 2).stalled == []
    driven.deliver(*notes(*range(80, 100)))
    driven.tick()
    assert driven.tick(DEADLINE_S).stalled == []
    while driven.engine.partitions[ORDERS].window.open > 1:
        for slice_ in list(driven.out):
            if slice_ not in hung:
                driven.finish(slice_)
        driven.tick()
    assert len(driven.tick(1.0).stalled) == 1


def test_tokens_are_few() -> None:
    relief = worker().engine.stalls._relief
    relief.earn(10**9)
    assert sum(relief.spend() for _ in range(100)) == MOST_TOKENS


def test_the_attempt_of_a_copy_counts_the_calls_of_all_hops() -> None:
    driven = Laddered(stall=StallRules(after_s=10.0))
    driven.deliver(driven.copy(0, 0.0, attempts=3), name=RETRIED)
    driven.tick(0.1)
    (slice_,) = driven.out
    driven.claim(slice_, 1)
    (stalled,) = driven.tick(11.0).stalled
    assert stalled.attempt == 4
    (call,) = driven.snapshot().calls
    assert call.attempt == 4
