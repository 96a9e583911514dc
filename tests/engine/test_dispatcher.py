from __future__ import annotations

from tests.engine.driver import Driven
from tests.engine.support import notes

TEN_MS = 0.010


def with_learnt_cost(slots: int, cost_s: float) -> Driven:
    """An Engine that knows what a call takes, with nothing to do."""
    driven = Driven(slots=slots, cell_records=5000)
    driven.engine.dispatcher.length.record(1000, 1000 * cost_s)
    driven.engine.dispatcher.length.learn()
    return driven


def test_slow_records_share_slices_where_many_slots_would_need_too_many() -> None:
    driven = with_learnt_cost(400, TEN_MS)
    driven.deliver(*notes(*range(10_000)))
    driven.tick()
    assert {len(slice_.messages) for slice_ in driven.out} == {8}
    assert len(driven.out) == 800


def test_a_few_slots_take_slow_records_one_by_one_however_many_wait() -> None:
    driven = with_learnt_cost(16, TEN_MS)
    driven.deliver(*notes(*range(10_000)))
    driven.tick()
    assert {len(slice_.messages) for slice_ in driven.out} == {1}


def test_no_more_records_share_a_slice_than_wait_for_each_slot() -> None:
    driven = with_learnt_cost(400, TEN_MS)
    driven.deliver(*notes(*range(1_000)))
    driven.tick()
    assert {len(slice_.messages) for slice_ in driven.out} <= {1, 2}
    assert len(driven.out) >= 400


def test_while_enough_is_queued_new_slices_hold_as_many_slow_records_as_may_share_one() -> None:
    driven = with_learnt_cost(400, TEN_MS)
    driven.deliver(*notes(*range(1_600)))
    driven.tick()
    first = set(driven.out)
    assert len(first) == 400
    driven.deliver(*notes(*range(1_600, 1_720)))
    driven.tick()
    queued = set(driven.out)
    assert {len(slice_.messages) for slice_ in queued - first} == {1}
    driven.deliver(*notes(*range(1_720, 1_800)))
    driven.tick()
    assert {len(slice_.messages) for slice_ in set(driven.out) - queued} == {8}


def test_a_stock_of_long_slices_is_asked_for_beside_those_that_run() -> None:
    driven = with_learnt_cost(400, TEN_MS)
    driven.deliver(*notes(*range(4_000)))
    driven.tick()
    assert driven.engine.appetite() > 0
    driven.deliver(*notes(*range(4_000, 6_000)))
    driven.tick()
    assert driven.engine.appetite() == 0


def test_enough_is_asked_for_to_share_slices() -> None:
    driven = with_learnt_cost(400, TEN_MS)
    driven.deliver(*notes(*range(400 * 8)))
    assert driven.engine.appetite() > 0


def test_slow_records_are_fetched_as_they_are_needed() -> None:
    """What is fetched long before its turn waits in the window."""
    assert with_learnt_cost(16, 0.020).engine.appetite() == 16 + 8
    assert with_learnt_cost(16, 0.002).engine.appetite() == 16 * 2 + 80
    assert with_learnt_cost(1, 0.020).engine.appetite() == 1 + 1
    assert with_learnt_cost(1, 10.0).engine.appetite() == 1


def test_more_is_fetched_when_a_part_of_what_waits_has_gone_to_slots() -> None:
    """Asking for each record alone would cost more than it takes."""
    driven = with_learnt_cost(16, 0.005)
    driven.deliver(*notes(*range(16 + 32)))
    driven.tick()
    asked = []
    for _ in range(16):
        driven.finish(driven.out[0], elapsed=0.005)
        asked.append(driven.engine.appetite())
    assert asked == [0] * 13 + [14, 15, 16]


def test_what_waits_for_a_slot_is_no_more_than_some_milliseconds_of_work() -> None:
    driven = with_learnt_cost(50, TEN_MS)
    delivered = 0
    while want := driven.engine.appetite():
        driven.deliver(*notes(*range(delivered, delivered + want)))
        driven.tick()
        delivered += want
    assert delivered == 50 + 50
    assert driven.engine.work.unfinished() == delivered


def test_fast_records_are_fetched_in_full_batches() -> None:
    driven = with_learnt_cost(16, 1e-6)
    assert driven.engine.appetite() == driven.engine.rules.batch_records


def test_results_may_lie_while_the_slots_have_enough_queued() -> None:
    driven = with_learnt_cost(16, TEN_MS)
    driven.deliver(*notes(*range(32)))
    driven.tick()
    assert driven.engine.demand.rest_s > 0
    for _ in range(9):
        driven.finish(driven.out[0], elapsed=TEN_MS)
    assert driven.engine.demand.rest_s == 0.0


def test_results_of_fast_handlers_are_read_at_once() -> None:
    driven = with_learnt_cost(2, 1e-6)
    driven.deliver(*notes(*range(8000)))
    driven.tick()
    assert driven.engine.demand.rest_s == 0.0


def test_a_slow_handler_is_not_stuck_before_twice_its_usual_time() -> None:
    driven = with_learnt_cost(400, 0.030)
    driven.deliver(*notes(*range(10_000)))
    driven.tick()
    slice_ = driven.out[0]
    assert len(slice_.messages) > 1
    driven.claim(slice_, 1)
    driven.tick(0.010)
    driven.tick(0.055)
    assert driven.engine.counters.taken_back == 0
    driven.tick(0.010)
    assert driven.engine.counters.taken_back == 1
