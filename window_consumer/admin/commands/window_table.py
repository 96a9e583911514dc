"""The windows of a worker in a terminal: a row for each partition, a sign for each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen
from rich.table import Table
from rich.text import Text

from window_consumer.admin.commands.worker_lines import duration, line
from window_consumer.engine.windows_snapshot import CellState, PartitionSnapshot

# Each state has a symbol and a colour, so that it is recognizable without colours.
_LOOK: Mapping[CellState, tuple[str, str]] = {
    CellState.DONE: ("■", "green"),
    CellState.WAITING: ("·", "bright_black"),
    CellState.RUNNING: ("▸", "bright_cyan"),
    CellState.RETRYING: ("r", "yellow"),
    CellState.HOVERING: ("H", "bold white on red"),
}
_FREE: Final = ("_", "bright_black")
_MORE: Final = ("…", "dim")

USUAL_NAME: Final = 10
_LEAST_CELLS: Final = 16
"""Other columns are left out before a window shows fewer cells."""
_FEWEST_CELLS: Final = 6
"""A window shows at least this many cells, even in a narrow terminal."""
_SIDES: Final = ("start cell left, end cell right", "start to end", "cells")
_SHOWN_TAIL: Final = 8
"""If not all cells fit, this many from the end of the window are shown."""


def legend() -> Text:
    """Return the legend of the symbols."""
    text = Text()
    for state, (sign, style) in _LOOK.items():
        text.append(f" {sign} ", style=style)
        text.append(f"{state.value}  ", style="dim")
    text.append(f" {_FREE[0]} ", style=_FREE[1])
    text.append("free", style="dim")
    return text


def window_table(heading: str, partitions: Sequence[PartitionSnapshot], width: int) -> Table:
    """Return the table for a terminal of this width; the first column has the heading."""
    columns = _Columns.of(heading, partitions, width)
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column(line(heading), overflow="fold", width=columns.name)
    if columns.offset:
        table.add_column("from", justify="right", width=columns.offset)
    sides = next(text for text in _SIDES if len(text) <= columns.cells + 2)
    table.add_column(sides, no_wrap=True, width=columns.cells + 2)
    if columns.open:
        table.add_column("open", justify="right", no_wrap=True, width=columns.open)
    table.add_column("lag", justify="right", no_wrap=True, width=columns.lag)
    for partition in partitions:
        row = [line(str(partition.name))]
        row += [line(str(partition.next_offset))] if columns.offset else []
        row += [_cells(partition, columns.cells)]
        row += [_open(partition)] if columns.open else []
        table.add_row(*row, _lag(partition))
    return table


@frozen
class _Columns:
    """The width of each column; 0 if there is no room for it."""

    name: int
    offset: int
    cells: int
    open: int
    lag: int

    @classmethod
    def of(cls, heading: str, partitions: Sequence[PartitionSnapshot], width: int) -> _Columns:
        """Give the cells the remaining width, and drop other columns before there are too few."""
        names = max(len(line(text)) for text in [heading, *(str(one.name) for one in partitions)])
        offset = max([6, *(len(str(one.next_offset)) for one in partitions)])
        open_ = max([6, *(len(_open(one)) for one in partitions)])
        lag = max([3, *(len(_lag(one)) for one in partitions)])
        room = max(1, width - lag - _FEWEST_CELLS - 8)
        name = min(names, max(USUAL_NAME, width // 2), room)
        most = max([len(_SIDES[0]) - 2, *(one.capacity_cells for one in partitions)])
        for chosen in ((offset, open_, max(10, lag)), (0, open_, lag), (0, 0, lag)):
            # Each column has a blank on both sides, and the cells have brackets.
            cells = width - sum(each + 2 for each in (name, *chosen) if each) - 4
            if cells >= _LEAST_CELLS:
                break
        offset, open_, lag = chosen
        return cls(name, offset, min(most, max(_FEWEST_CELLS, cells)), open_, lag)


def _open(partition: PartitionSnapshot) -> Text:
    waits = " rate" if partition.waits_for_rate else ""
    paused = " by hand" if partition.halted else " paused" if partition.paused else ""
    return line(f"{partition.open}{paused}{waits}")


def _lag(partition: PartitionSnapshot) -> Text:
    records = "?" if partition.lag.records is None else f"{partition.lag.records}"
    return line(f"{records}, {duration(partition.lag.seconds)}")


def _cells(partition: PartitionSnapshot, most: int) -> Text:
    text = Text("[", style="dim")
    cells = [_LOOK[cell.state] for cell in partition.cells]
    free = max(0, partition.capacity_cells - len(cells))
    if len(cells) + free <= most:
        cells += [_FREE] * free
    elif len(cells) + 2 <= most:
        cells += [*[_FREE] * (most - len(cells) - 1), _MORE]
    else:
        tail = min(_SHOWN_TAIL, most // 2 - 1)
        end = [*cells[-tail:], *[_FREE] * min(1, free)]
        cells = [*cells[: most - len(end) - 1], _MORE, *end]
    for sign, style in cells:
        text.append(sign, style=style)
    text.append("]", style="dim")
    return text
