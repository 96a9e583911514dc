"""The window of one partition: its open cells in order, from the start cell to the end cell.

A cell is a run of consecutive delivered records with their outcomes. The window knows sequence
numbers (see ``offsets``), never messages. A finished record is released at once; only its outcome
stays until its cell slides out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import ceil, inf

from window_consumer.engine.offsets import DeliveredOffsets, after
from window_consumer.model.outcome import Outcome

OPEN = Outcome.OPEN.number
_OPEN_BYTE = Outcome.OPEN.byte
_ENDED_BYTE = b"\xff"


class Cell:
    """Consecutive records and their outcomes; the unit of commit. Owner: its window."""

    __slots__ = ("first_seq", "open", "opened", "states", "touched")

    def __init__(self, first_seq: int, now: float):
        self.first_seq = first_seq
        self.states = bytearray()
        """The number of an ``Outcome`` for each record."""
        self.open = 0
        """How many of its records are not finished."""
        self.opened = now
        """When its first record arrived."""
        self.touched = now
        """When its latest record finished; until then, when it was opened."""

    @property
    def end_seq(self) -> int:
        """One past the sequence number of the cell's last record."""
        return self.first_seq + len(self.states)

    def first_open_seq(self) -> int:
        """Return the sequence number of the first unfinished record; the cell has one."""
        return self.first_seq + self.states.index(OPEN)


class Window:
    """The open cells of one partition's assignment. Owner: poll thread.

    It holds at most ``max_cells`` cells of ``cell_records`` records each. The end cell takes
    records until it is full; every other cell is closed.
    """

    def __init__(self, next_offset: int, max_cells: int, cell_records: int):
        self.offsets = DeliveredOffsets(next_offset)
        self.cells: list[Cell] = []
        self.open = 0
        """Unfinished records in the window."""
        self.slid = 0
        """Cells that have slid out. Added to a cell's index, it gives the cell a stable number."""
        self._starts: list[int] = []  # first_seq of each cell, for bisect
        self._max_cells = max_cells
        self._cell_records = cell_records
        self._start_since = 0.0
        self.most_offsets: float = inf
        """How many offsets it may span, holes included."""

    @property
    def room(self) -> int:
        """How many more records fit, unless they lie too far from the first one."""
        left = (self._max_cells - len(self.cells)) * self._cell_records
        if self.cells:
            left += self._cell_records - len(self.cells[-1].states)
        return left

    def reach(self, first: int) -> float:
        """Return the end (exclusive) of the offsets that it may span; ``first`` comes next."""
        return (self.next_offset if self.cells else first) + self.most_offsets

    @property
    def capacity(self) -> int:
        """How many records fit in an empty window."""
        return self._max_cells * self._cell_records

    @property
    def next_offset(self) -> int:
        """The offset that may be committed (exclusive): no open record lies below it."""
        if self.cells:
            return self.offsets.offset_of(self.cells[0].first_seq)
        return self.offsets.next_offset

    def first_cells(self, share: float) -> range:
        """Return the sequence numbers of this share of its cells, the first ones, rounded up."""
        cells = self.cells[: ceil(share * len(self.cells))]
        return range(cells[0].first_seq, cells[-1].end_seq) if cells else range(0)

    def append(self, offsets: range, now: float, outcome: Outcome = Outcome.OPEN) -> int:
        """Take a delivered run without holes, no longer than ``room``, into the end cells.

        ``outcome`` is OPEN, or EARLIER for records that an earlier assignment finished. Return the
        sequence number of the first record. Raise ValueError if the run does not fit.
        """
        count = len(offsets)
        if count > self.room:
            msg = f"{count} records do not fit into a window with room for {self.room}"
            raise ValueError(msg)
        seq = self.offsets.append(offsets)
        position = seq
        byte = outcome.byte
        while count:
            if not self.cells or len(self.cells[-1].states) >= self._cell_records:
                self._open_cell(position, now)
            cell = self.cells[-1]
            taken = min(count, self._cell_records - len(cell.states))
            cell.states += byte * taken
            if outcome is Outcome.OPEN:
                cell.open += taken
                self.open += taken
            position += taken
            count -= taken
        return seq

    def finish(self, seqs: Sequence[int], outcome: Outcome, now: float) -> None:
        """Give open records their final outcome; raise ValueError if one already has one.

        ``seqs`` are sequence numbers: a range costs O(cells), anything else O(records).
        """
        if type(seqs) is range:
            self._finish_range(seqs.start, seqs.stop, outcome, now)
        else:
            for seq in seqs:
                self._finish_range(seq, seq + 1, outcome, now)

    def finish_rest(self, start: int, stop: int) -> None:
        """Finish the open records of a run; how they ended is not kept."""
        start = max(start, self._starts[0] if self._starts else stop)
        while start < stop:
            cell = self._cell_of(start)
            low, high = start - cell.first_seq, min(stop - cell.first_seq, len(cell.states))
            states = cell.states[low:high]
            count = states.count(_OPEN_BYTE)
            if count:
                cell.states[low:high] = states.replace(_OPEN_BYTE, _ENDED_BYTE)
                cell.open -= count
                self.open -= count
            start = cell.end_seq

    def is_open(self, seq: int) -> bool:
        """Return whether a record in the window has no final outcome."""
        if not self.cells or seq < self._starts[0] or seq >= self.offsets.next_seq:
            return False
        cell = self._cell_of(seq)
        return cell.states[seq - cell.first_seq] == OPEN

    def place_of(self, seq: int) -> int | None:
        """Return the index of the cell that holds a record; None if it is not in the window."""
        if not self.cells or seq < self._starts[0] or seq >= self.offsets.next_seq:
            return None
        return bisect_right(self._starts, seq) - 1

    def slide(self, now: float) -> int:
        """Release the leading run of complete cells and return how many records they held.

        Afterwards ``next_offset`` may be committed. Cost: O(cells released).
        """
        complete = 0
        records = 0
        for cell in self.cells:
            if cell.open:
                break
            complete += 1
            records += len(cell.states)
        if complete:
            self.slid += complete
            del self.cells[:complete]
            del self._starts[:complete]
            self.offsets.drop_before(self._starts[0] if self.cells else self.offsets.next_seq)
            self._start_since = now
        return records

    def hovering_since(self) -> float | None:
        """Return when the start cell last made progress; None if nothing is open.

        Progress means that one of its records finished, or that it became the start cell.
        """
        if not self.cells:
            return None
        return max(self._start_since, self.cells[0].touched)

    def finished_ranges(self) -> Iterator[range]:
        """Yield the finished offsets at or beyond ``next_offset``, in order.

        Holes in the log between two finished records count as finished: nothing more can be
        delivered there.
        """
        started = stopped = -1
        for start, stop in self.finished_seqs():
            if start == stopped:
                stopped = stop
                continue
            if started >= 0:
                yield self.offsets_between(started, stopped)
            started, stopped = start, stop
        if started >= 0:
            yield self.offsets_between(started, stopped)

    def finished_seqs(self) -> Iterator[tuple[int, int]]:
        """Yield the finished runs of sequence numbers in the window, in order."""
        for cell in self.cells:
            states = cell.states
            end = len(states)
            index = 0 if cell.open < end else end
            while index < end:
                if states[index] == OPEN:
                    index = _next_finished(states, index, end)
                    continue
                stop = states.find(_OPEN_BYTE, index)
                stop = end if stop < 0 else stop
                yield cell.first_seq + index, cell.first_seq + stop
                index = stop

    def offsets_between(self, start: int, stop: int) -> range:
        """Return the offsets from one record until before another."""
        return range(self.offsets.offset_of(start), after(self.offsets.offset_of(stop - 1)))

    def _finish_range(self, start: int, stop: int, outcome: Outcome, now: float) -> None:
        index = bisect_right(self._starts, start) - 1
        byte = outcome.byte
        while start < stop:
            if not 0 <= index < len(self.cells):
                raise ValueError(_no_longer_open(start, stop))
            cell = self.cells[index]
            low = start - cell.first_seq
            high = min(stop - cell.first_seq, len(cell.states))
            count = high - low
            if count <= 0 or cell.states.count(_OPEN_BYTE, low, high) != count:
                raise ValueError(_no_longer_open(start, stop))
            cell.states[low:high] = byte * count
            cell.open -= count
            cell.touched = now
            self.open -= count
            start += count
            index += 1

    def _cell_of(self, seq: int) -> Cell:
        return self.cells[bisect_right(self._starts, seq) - 1]

    def _open_cell(self, first_seq: int, now: float) -> None:
        if not self.cells:
            self._start_since = now
        self.cells.append(Cell(first_seq, now))
        self._starts.append(first_seq)


def _no_longer_open(start: int, stop: int) -> str:
    return f"sequence numbers {start}..{stop - 1} include a record that is not open"


def _next_finished(states: bytearray, index: int, end: int) -> int:
    """Return where the run of open records that begins at ``index`` ends."""
    # bytes.lstrip runs in C; a window with one open run at its end is the common case.
    return end - len(states[index:end].lstrip(_OPEN_BYTE))
