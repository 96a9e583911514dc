"""Records whose handlers return something to produce are open until all of it is acked."""

from __future__ import annotations

import pytest

from tests.engine.producing import LOST, REFUSED, TOO_LARGE, ProducingDriven, invoice
from tests.engine.support import ORDERS, notes, spent_after
from tests.golden_texts import Golden
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.guards.breaker_state import BreakerRules, BreakerState
from window_consumer.engine.retry.output import COPIES_HELD, MAX_UNACKED_RESULTS, RECORD_BYTES
from window_consumer.engine.scheduling.slice_results import RecordsReturned
from window_consumer.model.errors import ResultRefusedError
from window_consumer.model.headers import Reason

# ---- acked before it is finished


def test_a_record_is_finished_when_all_of_its_results_are_acked_and_not_before() -> None:
    driven = ProducingDriven()
    driven.deliver(*notes(0))
    driven.tick()
    driven.produce_all(invoice(1), invoice(2))
    assert driven.sent == [invoice(1), invoice(2)]
    assert driven.tick(1.0).commit == []
    driven.answer()
    assert driven.tick(1.0).commit == []
    driven.answer()
    assert [commit.next_offset for commit in driven.tick(1.0).commit] == [1]
    counters = driven.engine.counters
    assert (counters.processed, counters.produced) == (1, 2)


def test_what_a_call_returns_holds_no_slot_and_no_other_record() -> None:
    driven = ProducingDriven(slots=1)
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    driven.produce(driven.out[0], {0: [invoice()]})
    driven.tick()
    driven.finish_all()
    assert driven.engine.counters.processed == 2
    assert driven.committable == 0


def test_a_batch_is_open_as_a_whole_until_its_results_are_acked() -> None:
    driven = ProducingDriven(batch_records=10, slots=1)
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    driven.finish_all()
    driven.deliver(*notes(*range(3, 9)))
    driven.tick()
    (slice_,) = (each for each in driven.out if len(each.messages) > 1)
    messages = tuple(driven.claim(slice_))
    slice_.deviate().returned.append(RecordsReturned(messages, [invoice()]))
    driven.finish(slice_)
    driven.tick()
    first = messages[0].offset()
    assert driven.committable <= first
    driven.answer_all()
    driven.finish_all()
    assert driven.committable == 9


def test_calls_for_parts_of_a_batch_may_have_their_records_in_any_order() -> None:
    driven = ProducingDriven(slots=1)
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    driven.finish_all()
    driven.deliver(*notes(*range(3, 9)))
    driven.tick()
    slice_ = max(driven.out, key=lambda each: len(each.messages))
    messages = driven.claim(slice_)
    assert len(messages) > 2
    for parts in (messages[::2], messages[1::2]):
        slice_.deviate().returned.append(RecordsReturned(parts, [invoice()]))
    driven.finish(slice_)
    driven.tick()
    assert sorted(m.offset() for each, _ in driven.sending for m in each.messages) == [
        m.offset() for m in messages
    ]


# ---- order


def test_the_lane_of_a_record_waits_for_its_acks_and_other_lanes_go_on() -> None:
    driven = ProducingDriven(ordering="key")
    driven.deliver(*notes(0, 1, 2, keys=[b"a", b"b", b"a"]))
    driven.tick()
    assert driven.running_offsets == [0, 1]
    driven.produce(driven.out[0], {0: [invoice()]})
    driven.finish_all()
    assert driven.engine.counters.processed == 1
    driven.answer()
    driven.tick()
    assert driven.running_offsets == [2]


def test_results_of_a_lane_are_sent_in_the_order_of_its_records_whatever_is_lost() -> None:
    driven = ProducingDriven(ordering="partition")
    driven.deliver(*notes(0, 1))
    driven.tick()
    driven.produce(driven.out[0], {0: [invoice(0), invoice(1)]})
    driven.tick()
    driven.answer(LOST)
    driven.answer()
    driven.tick()
    assert (driven.sent, driven.running_offsets) == ([], [])
    driven.tick(1.0)
    assert driven.sent == [invoice(0), invoice(1)]  # the second again, behind the first
    driven.answer_all()
    driven.tick()
    assert driven.running_offsets == [1]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_while_calls_return_results_a_slice_holds_one_record_of_a_lane(ordering: str) -> None:
    driven = ProducingDriven(ordering=ordering, slots=1)
    keys = [b"a", b"b"] * 500
    driven.deliver(*notes(*range(1000), keys=keys))
    called = 0
    for _ in range(100):
        driven.tick()
        for slice_ in driven.out:
            lanes = [slice_.lane_of(each) for each in slice_.messages if slice_.lane_of]
            assert len(set(lanes)) == len(lanes)
            called += len(lanes)
        driven.produce_all(invoice())
        driven.answer_all()
    assert called >= 100
    assert driven.engine.counters.processed == called
    longest = 0
    for _ in range(10):  # and when they do not any more, slices are long again
        for slice_ in list(driven.out):
            driven.finish(slice_)
        driven.tick()
        longest = max([longest, *(len(each.messages) for each in driven.out)])
    assert longest > 2


# ---- refused


def test_a_result_that_is_refused_is_a_failed_call_and_the_fault_says_which(golden: Golden) -> None:
    driven = ProducingDriven(retry=spent_after(2))
    driven.deliver(*notes(0))
    driven.tick()
    driven.produce_all(invoice(1), invoice(2))
    driven.answer()
    driven.answer(REFUSED)
    (failed,) = driven.tick().failed
    assert failed.attempts == 1
    assert isinstance(failed.failure.error, ResultRefusedError)
    text = "result 2 of 2, for invoices, was refused: unknown topic"
    assert failed.failure.fault.message == text
    driven.tick(1.0)
    (again,) = driven.out
    assert again.call.attempt == 2
    driven.produce_all(invoice(2))
    driven.answer(REFUSED)
    failed = driven.published_one()
    assert failed.reason is Reason.RETRIES_EXHAUSTED
    golden(failed.failure.fault.message)
    driven.copied(failed)
    assert driven.committable == 1
    assert driven.engine.budget.used == 0


def test_a_record_that_failed_before_is_finished_by_the_acks_of_its_results() -> None:
    driven = ProducingDriven(ordering="key", retry=spent_after(3))
    driven.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick(2.0)
    driven.produce_all(invoice())
    assert driven.running_offsets == []
    driven.answer()
    driven.tick()
    assert driven.running_offsets == [1]
    assert driven.failing() == []


def test_what_is_lost_is_sent_again_later_and_the_handler_is_not_called_again() -> None:
    driven = ProducingDriven()
    driven.deliver(*notes(0))
    driven.tick()
    driven.produce_all(invoice(1), invoice(2), invoice(3))
    for error in (None, LOST, None):
        driven.answer(error)
    assert driven.engine.wait_s(driven.now, 10.0) <= 0.5
    driven.tick(0.3)
    assert driven.sent == []
    driven.tick(0.3)
    assert driven.sent == [invoice(2), invoice(3)]
    driven.answer_all()
    driven.tick()
    assert driven.committable == 1
    assert driven.engine.counters.publish_failures == 1
    assert driven.out == []


def test_a_batch_that_is_too_large_is_sent_one_by_one_before_a_result_is_refused(
    golden: Golden,
) -> None:
    driven = ProducingDriven(slots=2, retry=spent_after(1))
    driven.deliver(*notes(0, 1))
    driven.tick()
    driven.produce_all(invoice(1), invoice(2))
    assert len(driven.sent) == 2 * driven.engine.counters.delivered
    driven.answer_all(TOO_LARGE)
    for expected in (invoice(1), invoice(2), invoice(1)):
        driven.tick()
        assert driven.sent == [expected]
        driven.answer()
    assert driven.engine.counters.processed == 1
    driven.tick()
    driven.answer(TOO_LARGE)
    (failed,) = driven.tick().failed
    golden(failed.failure.fault.message)


# ---- bounds


def test_results_count_against_the_memory_until_they_are_acked() -> None:
    driven = ProducingDriven(slots=1)
    driven.deliver(*notes(0, size=10))
    driven.tick()
    driven.produce_all(invoice(0))
    assert driven.engine.budget.used == 10 + COPIES_HELD * (RECORD_BYTES + len(invoice(0)))
    driven.answer_all()
    driven.tick()
    assert driven.engine.budget.used == 0


def test_nothing_new_starts_while_too_much_waits_for_its_ack() -> None:
    driven = ProducingDriven(slots=2, window_bytes=100_000)
    large = invoice(0, headers={"filling": b"x" * 10_000})
    driven.deliver(*notes(*range(100), size=1))
    held = 0
    for _ in range(50):
        driven.tick()
        driven.produce_all(large)
        held = max(held, driven.unacked_bytes)
    assert driven.out == []
    room = 0.25 * 100_000
    assert held <= room + 2 * 2 * COPIES_HELD * 11_000  # what two slots had, queued ones included
    while driven.sending:
        driven.answer_all()
        driven.tick()
        driven.produce_all(large)
    assert driven.engine.counters.processed == 100
    assert (driven.engine.budget.used, driven.unacked_bytes) == (0, 0)


def test_slices_are_short_where_what_their_calls_return_is_large() -> None:
    driven = ProducingDriven(slots=1, window_bytes=10**6)
    driven.deliver(*notes(*range(5000), size=1))
    driven.tick()
    driven.produce_all(invoice(0, headers={"filling": b"x" * 5_000}))
    driven.answer_all()
    for _ in range(20):
        driven.tick()
        assert all(len(slice_.messages) <= 13 for slice_ in driven.out)
        driven.produce_all(invoice(0, headers={"filling": b"x" * 5_000}))
        driven.answer_all()


def test_only_so_many_results_are_on_their_way_at_once() -> None:
    driven = ProducingDriven(slots=8)
    driven.deliver(*notes(*range(30)))
    many = [invoice(number) for number in range(1000)]
    for _ in range(30):
        driven.tick()
        driven.produce_all(*many)
    assert len(driven.sending) == MAX_UNACKED_RESULTS
    driven.answer()
    driven.tick()
    assert len(driven.sending) == MAX_UNACKED_RESULTS - 1 + 1000


# ---- giving up


def test_a_partition_that_is_given_up_waits_for_its_results() -> None:
    driven = ProducingDriven()
    driven.deliver(*notes(0))
    driven.tick()
    driven.produce(driven.out[0], {0: [invoice()]})
    driven.engine.on_revoking([ORDERS], driven.now)
    assert driven.engine.work.busy([ORDERS])
    driven.tick()
    driven.answer()
    assert not driven.engine.work.busy([ORDERS])
    commits, _ = driven.engine.on_revoked([ORDERS], driven.now)
    assert [commit.next_offset for commit in commits] == [1]


def test_the_ack_of_a_result_of_a_lost_partition_changes_nothing() -> None:
    driven = ProducingDriven()
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    driven.produce_all(invoice())
    driven.engine.on_lost([ORDERS], driven.now)
    driven.engine.on_assigned([Assigned(ORDERS, 0, committed=(0, ""))], driven.now)
    driven.answer_all()
    driven.tick()
    assert driven.committable == 0
    counters = driven.engine.counters
    assert (counters.processed, counters.late) == (0, 3)
    assert (driven.engine.budget.used, driven.unacked_bytes) == (0, 0)


def test_results_of_a_lost_partition_that_wait_are_not_sent() -> None:
    driven = ProducingDriven()
    driven.deliver(*notes(0))
    driven.tick()
    driven.produce_all(invoice())
    driven.answer(LOST)
    driven.engine.on_lost([ORDERS], driven.now)
    driven.tick(20.0)
    assert driven.sent == []
    assert driven.unacked_bytes == 0


# ---- the breaker


def test_refused_results_open_the_breaker_as_failed_calls_do() -> None:
    rules = BreakerRules(min_calls=4, cool_down_s=5.0)
    driven = ProducingDriven(slots=4, retry=spent_after(1), breaker=rules)
    driven.deliver(*notes(*range(20)))
    for _ in range(4):
        driven.tick()
        driven.produce_all(invoice())
        driven.answer_all(REFUSED)
    driven.tick()
    assert driven.engine.breaker.state is BreakerState.HOLDING


def test_a_sample_counts_as_returned_when_its_results_are_acked() -> None:
    rules = BreakerRules(min_calls=2, cool_down_s=5.0)
    driven = ProducingDriven(slots=4, retry=spent_after(1), breaker=rules)
    driven.deliver(*notes(*range(20)))
    driven.engine.breaker.hold(driven.now)
    driven.tick(1.0)
    assert len(driven.out) == 1
    driven.produce_all(invoice())
    states = []
    driven.tick(0.1)
    states.append(driven.engine.breaker.state)
    driven.answer()
    driven.tick()
    states.append(driven.engine.breaker.state)
    assert states == [BreakerState.OPEN, BreakerState.HALF_OPEN]
