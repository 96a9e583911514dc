from __future__ import annotations

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, notes
from window_consumer.engine.snapshot import SHOWN_HOVERING_S, take_snapshot
from window_consumer.engine.windows_snapshot import CellState, PartitionSnapshot


def window_of(driven: Driven) -> PartitionSnapshot:
    (partition,) = take_snapshot(driven.engine, driven.now, 0).partitions
    return partition


def states(driven: Driven) -> list[CellState]:
    return [cell.state for cell in window_of(driven).cells]


def two_cells_of_which_the_second_is_done() -> Driven:
    driven = Driven(slots=8, window_cells=4, cell_records=2)
    driven.deliver(*notes(0, 1, 2, 3))
    driven.tick()
    for slice_ in list(driven.out):
        if slice_.messages[0].offset() == 0:
            driven.claim(slice_, 1)
        else:
            driven.finish(slice_)
    return driven


def test_a_start_cell_that_stands_while_later_ones_are_done_is_shown_as_hovering() -> None:
    driven = two_cells_of_which_the_second_is_done()
    assert states(driven) == [CellState.RUNNING, CellState.DONE]
    driven.tick(SHOWN_HOVERING_S * 1.1)
    assert states(driven) == [CellState.HOVERING, CellState.DONE]


def test_a_picture_counts_what_is_open_and_what_runs() -> None:
    driven = two_cells_of_which_the_second_is_done()
    window = window_of(driven)
    assert (window.next_offset, window.open, window.capacity_cells) == (0, 1, 4)
    assert (window.first_open, window.row, window.slid) == (0, "rd", 0)
    (call,) = take_snapshot(driven.engine, driven.now, 0).calls
    assert (call.offset, call.attempt) == (0, 1)


def test_a_record_that_waits_for_its_next_attempt_is_shown_as_retrying() -> None:
    driven = Driven(slots=1, window_cells=4, cell_records=2)
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    assert states(driven) == [CellState.RETRYING]


def test_a_cell_is_as_old_as_its_first_record() -> None:
    driven = Driven(slots=1, window_cells=4, cell_records=2)
    driven.deliver(*notes(0))
    driven.tick(2.0)
    driven.deliver(*notes(1, 2))
    driven.tick(0.5)
    assert [cell.age_s for cell in window_of(driven).cells] == [2.5, 0.5]


def test_a_picture_stays_as_it_was_taken() -> None:
    driven = two_cells_of_which_the_second_is_done()
    before = take_snapshot(driven.engine, driven.now, 0)
    driven.finish_all()
    assert before.counters.processed == 3
    assert driven.engine.counters.processed == 4


def test_the_breaker_is_closed_since_the_beginning_and_not_since_the_clock_began() -> None:
    driven = Driven(slots=1)
    assert take_snapshot(driven.engine, driven.now, 0).breaker.seconds == 0.0
    driven.tick()
    driven.tick(7.0)
    assert take_snapshot(driven.engine, driven.now, 0).breaker.seconds == 7.0


def test_a_key_behind_whose_records_others_wait_is_shown_shortened() -> None:
    driven = Driven(slots=2, ordering="key", window_cells=4, cell_records=10)
    hot = b"customer-1 \xff" + b"x" * 100
    assert (window_of(driven).longest_line, window_of(driven).hottest_key) == (0, None)
    driven.deliver(*notes(*range(10), keys=[hot, b"cold"] * 5))
    driven.tick()
    for slice_ in list(driven.out):
        driven.claim(slice_, 1)
    driven.tick(1.0)
    driven.deliver(*notes(*range(10, 16), keys=[hot, hot, b"cold"] * 2))
    driven.tick()
    seen = window_of(driven)
    assert seen.longest_line == 8
    assert seen.hottest_key == "customer-1 \\xff" + "x" * 45 + "..."


def test_counts_how_long_commits_wait_for_their_acks() -> None:
    driven = Driven(slots=1)
    driven.deliver(*notes(0))
    driven.tick()
    driven.finish(driven.out[0])
    assert len(driven.tick(1.0).commit) == 1
    driven.engine.on_committed({ORDERS: None}, driven.now + 0.25)
    assert driven.engine.counters.commits_s == 0.25
