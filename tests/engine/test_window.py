from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.golden_texts import Golden
from window_consumer.engine.window import Window
from window_consumer.model.outcome import Outcome

NOW = 10.0


def a_window(next_offset: int = 0, cells: int = 3, cell_records: int = 4) -> Window:
    return Window(next_offset, cells, cell_records)


def test_an_empty_window_has_room_for_all_its_cells() -> None:
    assert a_window().room == 12


def test_a_window_does_not_slide_past_an_open_cell() -> None:
    window = a_window()
    window.append(range(10), NOW)
    window.finish(range(4, 8), Outcome.DONE, NOW)
    assert window.slide(NOW) == 0
    assert window.next_offset == 0


def test_the_start_offset_moves_on_when_its_cell_completes() -> None:
    window = a_window()
    window.append(range(10), NOW)
    window.finish(range(4), Outcome.DONE, NOW)
    assert window.slide(NOW) == 4
    assert window.next_offset == 4
    assert window.room == 6


def test_one_open_record_holds_its_whole_cell() -> None:
    window = a_window()
    window.append(range(8), NOW)
    window.finish((0, 1, 3, 4, 5, 6, 7), Outcome.DONE, NOW)
    window.slide(NOW)
    assert window.next_offset == 0
    window.finish((2,), Outcome.DEAD_LETTERED, NOW)
    window.slide(NOW)
    assert window.next_offset == 8


def test_an_unfilled_cell_slides_when_all_of_it_is_finished() -> None:
    window = a_window()
    window.append(range(2), NOW)
    window.finish(range(2), Outcome.DONE, NOW)
    window.slide(NOW)
    assert (window.next_offset, window.room, window.cells) == (2, 12, [])


def test_the_end_cell_takes_further_records_until_it_is_full() -> None:
    window = a_window()
    window.append(range(2), NOW)
    window.append(range(2, 5), NOW)
    assert [len(cell.states) for cell in window.cells] == [4, 1]


def test_holes_cost_no_room() -> None:
    window = a_window()
    window.append(range(1), NOW)
    window.append(range(1_000_000, 1_000_003), NOW)
    assert window.room == 8
    window.finish(range(4), Outcome.DONE, NOW)
    window.slide(NOW)
    assert window.next_offset == 1_000_003


def test_more_records_than_there_is_room_for_are_refused(golden: Golden) -> None:
    window = a_window()
    with golden.raises(ValueError):
        window.append(range(13), NOW)


@pytest.mark.parametrize("again", [range(2), (1,), range(3, 4)])
def test_a_final_outcome_is_given_once(again: range | tuple[int, ...]) -> None:
    window = a_window()
    window.append(range(3), NOW)
    window.finish(range(2), Outcome.DONE, NOW)
    with pytest.raises(ValueError, match="not open"):
        window.finish(again, Outcome.DONE, NOW)


def test_an_outcome_for_a_record_that_slid_out_is_refused() -> None:
    window = a_window()
    window.append(range(3), NOW)
    window.finish(range(3), Outcome.DONE, NOW)
    window.slide(NOW)
    with pytest.raises(ValueError, match="not open"):
        window.finish((0,), Outcome.DONE, NOW)


def test_finished_ranges_lie_beyond_the_start_and_cover_holes() -> None:
    window = a_window(next_offset=100)
    window.append(range(100, 103), NOW)
    window.append(range(110, 115), NOW)
    window.finish((1, 2, 3, 6), Outcome.DONE, NOW)
    # 101..102 and 110 follow each other in the log: the hole between them counts as finished.
    assert list(window.finished_ranges()) == [range(101, 111), range(113, 114)]


def test_finished_ranges_go_on_across_the_border_of_a_cell() -> None:
    window = a_window()
    window.append(range(9), NOW)
    window.finish(range(2, 7), Outcome.DONE, NOW)
    assert list(window.finished_ranges()) == [range(2, 7)]


def test_a_start_cell_hovers_since_its_last_progress() -> None:
    window = a_window()
    window.append(range(8), NOW)
    window.finish((4, 5), Outcome.DONE, NOW + 5)
    assert window.hovering_since() == NOW
    window.finish((1,), Outcome.DONE, NOW + 7)
    assert window.hovering_since() == NOW + 7


def test_a_cell_that_becomes_the_start_cell_has_its_time_from_then_on() -> None:
    window = a_window()
    window.append(range(8), NOW)
    window.finish(range(4), Outcome.DONE, NOW + 20)
    window.slide(NOW + 20)
    assert window.hovering_since() == NOW + 20


def test_an_empty_window_does_not_hover() -> None:
    assert a_window().hovering_since() is None


class WindowMachine(RuleBasedStateMachine):
    """Any history of a window agrees with a plain list of records."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(0, 4, 3)
        self.offsets: list[int] = []
        self.open: set[int] = set()
        self.offset = 0

    @precondition(lambda self: self.window.room > 0)
    @rule(data=st.data(), hole=st.integers(0, 5))
    def append(self, data: st.DataObject, hole: int) -> None:
        count = data.draw(st.integers(1, self.window.room))
        start = self.offset + hole
        seq = self.window.append(range(start, start + count), NOW)
        assert seq == len(self.offsets)
        self.open.update(range(seq, seq + count))
        self.offsets.extend(range(start, start + count))
        self.offset = start + count

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        seqs = data.draw(st.sets(st.sampled_from(sorted(self.open)), min_size=1))
        self.window.finish(sorted(seqs), Outcome.DONE, NOW)
        self.open -= seqs

    @rule()
    def slide(self) -> None:
        self.window.slide(NOW)

    @invariant()
    def no_open_record_lies_below_what_may_be_committed(self) -> None:
        below = [seq for seq in self.open if self.offsets[seq] < self.window.next_offset]
        assert below == []
        assert self.window.open == len(self.open)

    @invariant()
    def finished_ranges_say_exactly_what_is_finished(self) -> None:
        said = list(self.window.finished_ranges())
        for seq, offset in enumerate(self.offsets):
            if offset >= self.window.next_offset:
                assert any(offset in run for run in said) == (seq not in self.open)

    @invariant()
    def the_window_is_bounded(self) -> None:
        assert len(self.window.cells) <= 4
        assert all(len(cell.states) <= 3 for cell in self.window.cells)
        assert all(len(cell.states) == 3 for cell in self.window.cells[:-1])


TestWindowMachine = WindowMachine.TestCase


@given(st.lists(st.integers(0, 11), unique=True))
def test_a_window_slides_exactly_over_its_leading_complete_cells(finished: list[int]) -> None:
    window = a_window()
    window.append(range(12), NOW)
    window.finish(finished, Outcome.DONE, NOW)
    window.slide(NOW)
    complete = 0
    while complete < 3 and set(range(4 * complete, 4 * complete + 4)) <= set(finished):
        complete += 1
    assert window.next_offset == 4 * complete
