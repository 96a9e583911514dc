"""The window: cells that fill, finish and slide."""

from __future__ import annotations

from typing import Any

from window_consumer.engine.window import Window
from window_consumer.model.outcome import Outcome

CELLS, CELL_RECORDS = 32, 500
FULL = CELLS * CELL_RECORDS


def full_window() -> Window:
    """Return a full window with only open records."""
    window = Window(0, CELLS, CELL_RECORDS)
    for start in range(0, FULL, CELL_RECORDS):
        window.append(range(start, start + CELL_RECORDS), 0.0)
    return window


def test_slide_a_window_whose_cells_finish_in_order(benchmark: Any) -> None:
    """16,000 records come in, finish and slide out in runs of 500."""

    def cycle() -> int:
        window = Window(0, CELLS, CELL_RECORDS)
        slid = 0
        for start in range(0, FULL, CELL_RECORDS):
            records = range(start, start + CELL_RECORDS)
            window.append(records, 0.0)
            window.finish(records, Outcome.DONE, 0.0)
            slid += window.slide(0.0)
        return slid

    assert benchmark(cycle) == FULL


def test_slide_a_full_window_when_its_first_record_finishes_last(benchmark: Any) -> None:
    """The start cell blocks the line, everything else is finished, then all cells slide at once."""

    def hovering() -> tuple[tuple[Window], dict[str, Any]]:
        window = full_window()
        window.finish(range(1, FULL), Outcome.DONE, 0.0)
        return (window,), {}

    def release(window: Window) -> int:
        window.finish(range(1), Outcome.DONE, 1.0)
        return window.slide(1.0)

    assert benchmark.pedantic(release, setup=hovering, rounds=200) == FULL


def test_find_the_finished_ranges_of_a_window_with_every_other_record_open(benchmark: Any) -> None:
    """What a commit has to collect where nothing is finished in order."""
    window = full_window()
    for seq in range(1, FULL, 2):
        window.finish(range(seq, seq + 1), Outcome.DONE, 0.0)
    assert len(benchmark(lambda: list(window.finished_ranges()))) == FULL // 2
