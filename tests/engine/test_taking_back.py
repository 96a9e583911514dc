from __future__ import annotations

from tests.engine.driver import Driven
from tests.engine.support import failure, notes
from window_consumer.engine.retry.policy import RetryRules


def test_unstarted_records_of_a_stuck_slice_go_to_other_slots() -> None:
    driven = Driven(slots=2)
    driven.engine.dispatcher.length.records = 10
    driven.engine.dispatcher.length.cost_s = 1e-4
    driven.deliver(*notes(*range(10)))
    driven.tick()
    stuck = driven.out[0]
    driven.claim(stuck, 2)
    driven.tick(0.010)
    driven.tick(0.020)
    assert driven.engine.counters.taken_back > 0
    assert driven.running_offsets == sorted({*range(10)} - {stuck.messages[0].offset() - 1})
    driven.finish_all()
    assert driven.committable == 10


def test_the_lane_of_the_running_record_is_not_dealt_out_again() -> None:
    driven = Driven(slots=2, ordering="key")
    driven.engine.dispatcher.length.records = 10
    driven.engine.dispatcher.length.cost_s = 1e-4
    driven.deliver(*notes(0, 1, 2, 3, keys=[b"a", b"a", b"b", b"a"]))
    driven.tick()
    stuck = driven.out[0]
    driven.claim(stuck, 1)
    driven.tick(0.010)
    driven.tick(0.020)
    assert driven.running_offsets == [0, 2]
    driven.finish_all()
    assert driven.engine.counters.processed == 4


def test_a_slice_that_moves_on_keeps_its_records_while_all_slots_are_busy() -> None:
    driven = Driven(slots=1)
    driven.engine.dispatcher.length.records = 4
    driven.deliver(*notes(*range(8)))
    driven.tick()
    for _ in range(3):
        driven.claim(driven.out[0], 1)
        driven.tick(0.010)
    assert driven.engine.counters.taken_back == 0


def stuck_after_a_failure() -> Driven:
    """Offset 0 failed, 1 is held back, 2 is claimed, 3 and 4 are taken back; all of one lane."""
    driven = Driven(slots=2, ordering="partition", retry=RetryRules(attempts=3, backoff_min_s=0.01))
    driven.engine.dispatcher.length.records = 10
    driven.engine.dispatcher.length.cost_s = 1e-4
    driven.deliver(*notes(0, 1, 2, 3, 4))
    driven.tick()
    (slice_,) = driven.out
    messages = driven.claim(slice_, 3)
    slice_.deviate().failed.append((messages[0], failure()))
    slice_.deviate().held.append(messages[1])
    driven.tick(0.010)
    driven.tick(0.020)
    assert driven.engine.counters.taken_back == 2
    return driven


def started(driven: Driven) -> list[int]:
    """Let everything run to its end; return the offsets in the order of their slices."""
    order: list[int] = []
    while driven.out:
        order.extend(m.offset() for m in driven.out[0].messages)
        driven.finish(driven.out[0])
        driven.tick(0.01)
    return order


def test_records_held_back_before_and_after_a_take_back_keep_their_order() -> None:
    driven = stuck_after_a_failure()
    slow = driven.out[0]
    slow.deviate().held.append(slow.messages[-1])
    driven.finish(slow)
    driven.tick(0.01)
    assert started(driven) == [0, 1, 2, 3, 4]


def test_a_lane_waits_for_a_slot_that_is_about_to_hold_its_record_back() -> None:
    driven = stuck_after_a_failure()
    slow = driven.out.pop(0)
    driven.tick(0.01)
    assert driven.running_offsets == [0]
    driven.finish(driven.out[0])
    driven.tick(0.01)
    assert driven.running_offsets == []
    slow.deviate().held.append(slow.messages[-1])
    driven.out.append(slow)
    driven.finish(slow)
    driven.tick(0.01)
    assert started(driven) == [1, 2, 3, 4]
