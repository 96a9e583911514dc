"""Slots that come and go, and calls that end with their lease."""

from __future__ import annotations

from tests.engine.driver import Driven
from tests.engine.support import notes
from window_consumer.engine.guards.stalls import CHECK_S
from window_consumer.engine.guards.stuck_calls import StallRules
from window_consumer.engine.scheduling.slices import Slice

LEASES = StallRules(leases=True, ends=True, action="report")


def driven(slots: int = 4) -> Driven:
    it = Driven(slots=slots, stall=LEASES)
    it.deliver(*notes(*range(20)))
    return it


def leased(it: Driven, seconds: float) -> Slice:
    """Let a client take the only slice that is out."""
    (slice_,) = it.out
    it.claim(slice_)
    slice_.lease_until = it.now + seconds
    return slice_


def test_nothing_starts_without_a_slot_and_one_record_for_each() -> None:
    it = driven()
    it.engine.on_slots(0)
    it.tick()
    assert (it.running_offsets, it.engine.appetite()) == ([], 0)
    it.engine.on_slots(2)
    it.tick()
    assert [[each.offset() for each in slice_.messages] for slice_ in it.out] == [[0], [1]]
    it.engine.on_slots(9)
    it.tick()
    assert it.running_offsets == [0, 1, 2, 3]


def test_slots_that_go_take_nothing_back() -> None:
    it = driven()
    it.tick()
    it.engine.on_slots(1)
    it.finish(it.out[0])
    it.tick()
    assert it.running_offsets == [1, 2, 3]


def test_a_call_lasts_as_long_as_its_lease_and_no_longer() -> None:
    it = driven(slots=1)
    it.tick()
    slice_ = leased(it, 100.0)
    assert it.tick(99.0).stalled == []
    slice_.lease_until += 100.0
    assert it.tick(2.0).stalled == []
    (stalled,) = it.tick(100.0).stalled
    assert (stalled.offset, stalled.end, stalled.abandon) == (0, True, False)


def test_what_came_while_the_process_was_frozen_is_read_before_a_lease_ends() -> None:
    it = driven(slots=1)
    it.tick()
    leased(it, 10.0)
    it.now += 60.0
    it.engine.on_stood_still(0.0, it.now)
    assert it.tick(CHECK_S / 2).stalled == []
    assert len(it.tick(CHECK_S).stalled) == 1


def test_a_stop_waits_for_leases_however_long_they_last() -> None:
    it = driven(slots=1)
    it.tick()
    leased(it, 10_000.0)
    it.tick(5000.0)
    it.engine.on_stopping(it.now)
    assert it.engine.work.worth_waiting_for(it.now)
