"""The states of failed records, and the places where they are."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ONE_BY_ONE, ORDERS, Note, failure, notes, spent_after
from window_consumer.engine.guards.breaker_state import BreakerRules
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.policy import Spent
from window_consumer.engine.retry.record_line import WaitingRecords
from window_consumer.engine.retry.record_state import RecordState, UnknownRecordStepError
from window_consumer.engine.scheduling.rate_limit import RateRules
from window_consumer.model.errors import Fatal, PublishFailedError
from window_consumer.model.headers import Reason

S = RecordState
CHARGED = {S.HELD_BY_BREAKER, S.LEAVING, S.STOPPING}
AFTER_A_CALL = {S.WAITING, *CHARGED}
KNOWN = {
    S.NEW: {*AFTER_A_CALL, S.HELD_BY_RULE},
    S.WAITING: {*CHARGED, S.READY, S.GONE},
    S.READY: {*CHARGED, S.RUNNING, S.HELD_BY_RATE, S.HELD_BY_PARTITION, S.GONE},
    S.HELD_BY_RATE: {*CHARGED, S.READY, S.GONE},
    S.HELD_BY_PARTITION: {S.READY, S.CHOSEN, S.LEAVING, S.GONE},
    S.HELD_BY_RULE: {S.READY, S.LEAVING, S.GONE},
    S.CHOSEN: {S.RUNNING, S.READY, S.GONE},
    S.RUNNING: {*AFTER_A_CALL, S.READY, S.CHOSEN, S.PRODUCING, S.GONE},
    S.PRODUCING: {*AFTER_A_CALL, S.GONE},
    S.HELD_BY_BREAKER: {S.LEAVING, S.WAITING, S.READY, S.GONE},
    S.LEAVING: {S.LEAVING, S.UNACKED, S.GONE},
    S.UNACKED: {S.GONE, S.WAITING, S.LEAVING, S.STOPPING},
    S.STOPPING: {S.GONE},
    S.GONE: set[RecordState](),
}


@pytest.mark.parametrize(("before", "after"), list(product(S, S)))
def test_a_record_takes_the_steps_of_the_table_and_no_others(
    before: RecordState, after: RecordState
) -> None:
    if after in KNOWN[before]:
        assert before.to(after) is after
    else:
        with pytest.raises(UnknownRecordStepError):
            before.to(after)


def a_failed(offset: int, due: float = 0.0) -> FailedRecord:
    partition = Driven().engine.partitions[ORDERS]
    return FailedRecord(partition, Note(offset), offset, None, 1, failure(), 0.0, 0.0, due=due)


def test_an_unknown_step_leaves_a_record_where_it_is() -> None:
    records, failed = FailedRecords(), a_failed(0)
    records.enter(failed)
    records.wait(failed, 5.0)
    with pytest.raises(UnknownRecordStepError):
        records.move(failed, S.UNACKED)
    assert (failed.state, records.next_due(), len(records.unacked)) == (S.WAITING, 5.0, 0)


def test_waiting_records_come_in_the_order_of_their_due_times_whatever_is_removed() -> None:
    rng = Random(7)
    waiting = WaitingRecords()
    records = [a_failed(n, due=float(rng.randrange(50))) for n in range(400)]
    for failed in records:
        waiting.append(failed)
    kept = [failed for failed in records if rng.random() < 0.2]
    for failed in records:
        if failed not in kept:
            waiting.remove(failed)
    found = []
    while (first := waiting.first) is not None:
        found.append(first)
        waiting.remove(first)
    assert found == sorted(kept, key=lambda failed: failed.due)
    assert len(waiting) == 0


def states(driven: Driven) -> list[RecordState]:
    return [failed.state for failed in driven.failing()]


def with_a_failed_record(error: BaseException | None = None, **rules: object) -> Driven:
    driven = Driven(**{**ONE_BY_ONE, **rules})
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0, error=error)
    return driven


def test_a_retry_waits_is_ready_and_runs_until_it_is_done() -> None:
    driven = with_a_failed_record(retry=spent_after(3))
    assert states(driven) == [S.WAITING]
    driven.tick(10.0)
    assert states(driven) == [S.RUNNING]
    assert driven.take_back(driven.out[0]) == 1
    assert states(driven) == [S.READY]
    driven.finish(driven.out[0])
    driven.tick()
    driven.finish_all()
    assert driven.failing() == []


def test_a_retry_without_a_token_is_held_by_its_rate() -> None:
    rates = RateRules(per_s=0.01, burst=1)
    driven = with_a_failed_record(retry=spent_after(3), rate=rates)
    driven.tick(10.0)
    assert states(driven) == [S.HELD_BY_RATE]
    driven.tick(1000.0)
    assert states(driven) == [S.RUNNING]


def test_a_retry_of_a_paused_partition_is_held_by_it() -> None:
    driven = with_a_failed_record(retry=spent_after(3))
    driven.engine.on_halted(ORDERS, driven.now, halted=True)
    driven.tick(10.0)
    assert states(driven) == [S.HELD_BY_PARTITION]
    driven.engine.on_halted(ORDERS, driven.now, halted=False)
    driven.tick()
    assert states(driven) == [S.RUNNING]


def test_a_spent_record_is_held_by_the_breaker_until_it_decides() -> None:
    rules = BreakerRules(enabled=True)
    driven = Driven(cell_records=100, slots=100, retry=spent_after(1), breaker=rules)
    driven.deliver(*notes(*range(100)))
    driven.tick()
    for slice_ in list(driven.out):
        driven.fail(slice_, *range(100))
    driven.tick()
    assert S.HELD_BY_BREAKER in states(driven)


def test_a_copy_is_unacked_until_the_broker_has_answered() -> None:
    driven = with_a_failed_record(error=Fatal("broken"), retry=spent_after(1))
    assert states(driven) == [S.LEAVING]
    failed = driven.published_one()
    assert (failed.state, driven.unacked) == (S.UNACKED, 1)
    driven.copied(failed, PublishFailedError("no answer"))
    assert (failed.state, driven.unacked) == (S.WAITING, 0)
    driven.copied(driven.published_one(60.0))
    assert (failed.state, driven.failing(), driven.unacked) == (S.GONE, [], 0)


def test_a_record_that_stops_the_worker_stays() -> None:
    driven = with_a_failed_record(retry=spent_after(1, when_spent="stop"))
    assert states(driven) == [S.STOPPING]


def test_all_records_of_a_released_partition_are_gone_but_for_copies_on_their_way() -> None:
    driven = Driven(slots=8, retry=spent_after(3))
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    for slice_ in list(driven.out):
        fatal = Fatal("broken") if slice_.messages[0].offset() == 0 else None
        driven.fail(slice_, 0, 1, 2, error=fatal)
    known = driven.failing()
    copy = driven.published_one()
    driven.engine.on_lost([ORDERS], driven.now)
    assert [failed.state for failed in known] == [S.UNACKED, S.GONE, S.GONE]
    driven.copied(copy)
    assert (copy.state, driven.unacked) == (S.GONE, 0)
    assert driven.engine.failed_records.next_due() is None


def test_a_record_knows_why_and_where_it_leaves() -> None:
    failed = a_failed(0)
    assert (failed.reason, failed.level, failed.is_dropped) == (None, None, False)
    failed.spent = Spent(Reason.FATAL, "drop")
    assert (failed.reason, failed.end, failed.is_dropped) == (Reason.FATAL, "drop", True)
