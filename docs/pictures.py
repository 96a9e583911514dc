"""A picture of docs/monitoring.md: the live window while one order hangs, drawn by the demo itself.

``python -m docs.pictures`` writes docs/images/live-window.svg.
"""

from __future__ import annotations

import io
import logging
from pathlib import Path

from rich.console import Console

from window_consumer.admin.commands.live_view import view
from window_consumer.admin.commands.screen import TopScene
from window_consumer.demo.cli import run_demo
from window_consumer.engine.windows_snapshot import CellState

PICTURE = Path(__file__).parent / "images" / "live-window.svg"
WIDTH = 88


def most_telling_moment() -> TopScene:
    """Run the demo and return the moment that shows the most states at once."""
    moments: list[TopScene] = []
    logging.getLogger("window_consumer").setLevel(logging.CRITICAL)
    run_demo(moments.append)
    return max(moments, key=_worth)


def draw(moment: TopScene) -> str:
    """Return the picture of a moment, as SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(view(moment, WIDTH))
    return console.export_svg(title="window-consumer demo", unique_id="live-window")


def _worth(moment: TopScene) -> tuple[bool, int, int]:
    """Judge a moment: whether a cell hovers, how many states there are, how many cells."""
    windows = [window for worker in moment.workers for window in worker.snapshot.partitions]
    states = [cell.state for window in windows for cell in window.cells]
    return CellState.HOVERING in states, len(set(states)), len(states)


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(most_telling_moment()), "utf-8")
