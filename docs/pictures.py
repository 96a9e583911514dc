"""The picture of the README: the live window while one order hangs, drawn by the demo itself.

``python -m docs.pictures`` writes docs/images/live-window.svg.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from window_consumer.cli.demo.command import run_demo
from window_consumer.cli.live_view import view
from window_consumer.core.snapshot import CellState, Snapshot

PICTURE = Path(__file__).parent / "images" / "live-window.svg"
WIDTH = 88

Seen = tuple[Mapping[str, Snapshot], str, float]


def most_telling_moment() -> Seen:
    """Run the demo and return the moment at which most states are to be seen at once."""
    moments: list[Seen] = []
    logging.getLogger("window_consumer").setLevel(logging.CRITICAL)
    run_demo(lambda *seen: moments.append(seen))
    return max(moments, key=_worth)


def draw(moment: Seen) -> str:
    """Return the picture of a moment, as SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(view(*moment))
    return console.export_svg(title="window-consumer demo", unique_id="live-window")


def _worth(moment: Seen) -> tuple[bool, int, int]:
    """Judge a moment: whether a cell hovers, how many states there are, how many cells."""
    windows = [window for worker in moment[0].values() for window in worker.partitions]
    states = [cell.state for window in windows for cell in window.cells]
    return CellState.HOVERING in states, len(set(states)), len(states)


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(most_telling_moment()), "utf-8")
