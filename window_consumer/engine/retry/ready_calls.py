"""Failed records whose next call is due, in lines of those that may share a slice.

They are called in the order in which they became due. While a full window takes in nothing, every
second call is for its start cell: only that lets the window slide. The other calls are for the
rest, because the start cell's records may fail for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from itertools import islice, takewhile
from weakref import WeakKeyDictionary

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.record_line import RecordLine
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.engine.scheduling.rate_limit import RateLimits

Alike = tuple[Partition, int, object]
"""What the records of one slice have in common: partition, attempts, and the key if each key has a
rate."""

Lines = OrderedDict[Alike, "ReadyLine"]
"""Lines in order of their next calls: the first record of the front line is called next."""


class ReadyLine(RecordLine):
    """Records that may share a slice. The line is removed when its last record leaves."""

    __slots__ = ("alike", "lines")

    def __init__(self, alike: Alike, lines: Lines):
        super().__init__(RecordState.READY)
        self.alike = alike
        self.lines = lines

    @property
    def partition(self) -> Partition:
        """The partition of all its records."""
        return self.alike[0]

    def remove(self, failed: FailedRecord) -> None:
        """Remove a record, and the line if it was the last."""
        del self._records[failed]
        if not self._records:
            del self.lines[self.alike]

    def move(self, lines: Lines, state: RecordState) -> None:
        """Move all of its records to other lines, whose state may differ."""
        del self.lines[self.alike]
        if self.state is not state:
            self.state = self.state.to(state)
        other = lines.setdefault(self.alike, self)
        if other is self:
            self.lines = lines
        for failed in () if other is self else self:
            other.append(failed)


class ReadyCalls:
    """Failed records of one worker that may be called. Owner: poll thread."""

    state = RecordState.READY

    def __init__(self) -> None:
        self.rates: RateLimits | None = None
        """Set if a rate limits calls."""
        self._usual: Lines = OrderedDict()
        self._urgent: Lines = OrderedDict()
        """The lines of records in start cells of full windows."""
        self._dry: Lines = OrderedDict()
        """The lines found waiting for their rate since the last check."""
        self._urgent_next = True
        self._searched: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()
        """The number of the start cell for which the lines of a full window were searched."""

    def __bool__(self) -> bool:
        """The next call of some record may be due."""
        return bool(self._usual or self._urgent)

    def __len__(self) -> int:
        every = (self._usual, self._urgent, self._dry)
        return sum(len(line) for lines in every for line in lines.values())

    def append(self, failed: FailedRecord) -> None:
        """Add a record at the end of its line."""
        self._line_of(failed, in_front=False).append(failed)

    def put_first(self, failed: FailedRecord) -> None:
        """Add a record in front of its line."""
        self._line_of(failed, in_front=True).put_first(failed)

    def _line_of(self, failed: FailedRecord, *, in_front: bool) -> ReadyLine:
        """Return a record's line: its batch's line if the batch is at this end of it."""
        alike = self._alike(failed)
        if failed.together is not None:
            for lines in (self._urgent, self._usual):
                line = lines.get(alike)
                neighbour = line and (line.first if in_front else line.last)
                if line and neighbour and _same_batch(neighbour, failed):
                    return line
        partition, cells = failed.partition, failed.partition.window.cells
        is_urgent = cells and failed.seq < cells[0].end_seq and partition.is_full
        lines = self._urgent if is_urgent else self._usual
        found = lines.get(alike)
        if found is None:
            found = lines[alike] = ReadyLine(alike, lines)
        return found

    def refill(self) -> None:
        """Look again at the records that waited for their rate: they became ready first."""
        if not self._dry:
            return
        later, self._usual, self._dry = self._usual, self._dry, OrderedDict()
        for line in self._usual.values():
            line.state = line.state.to(RecordState.READY)
        for line in list(later.values()):
            line.move(self._usual, RecordState.READY)

    def next_line(self) -> ReadyLine | None:
        """Return the line whose first record is called next; None if there is none."""
        self._search()
        urgent = self._urgent and (self._urgent_next or not self._usual)
        return next(iter((self._urgent if urgent else self._usual).values()), None)

    def take(self, line: ReadyLine, at_most: int) -> list[FailedRecord]:
        """Return the first records of a line, to call now; none if its rate is used up.

        Records of a batch that are called again together are not separated. So there may be more
        than ``at_most``, but never more than a batch holds.
        """
        room = self._room(line, at_most)
        if not room:
            line.move(self._dry, RecordState.HELD_BY_RATE)
            return []
        self._urgent_next = line.lines is not self._urgent
        line.lines.move_to_end(line.alike)
        return _whole_batches(line, room)

    def _search(self) -> None:
        """Make the next line's records urgent if they are in the start cell of a full window.

        A window's lines are searched once for each start cell.
        """
        for partition, _, _ in self._usual:
            cell = partition.window.slid
            if partition.is_full and self._searched.get(partition) != cell:
                self._searched[partition] = cell
                for alike in [each for each in self._usual if each[0] is partition]:
                    for failed in self._usual.pop(alike):
                        self.append(failed)
            return

    def _room(self, line: ReadyLine, at_most: int) -> int:
        """Return how many records of a line may be called now."""
        rates, first = self.rates, line.first
        if rates is None or first is None:
            return at_most
        if not rates.may_start(first.partition, first.message):
            return 0
        bucket = rates.bucket(first.partition, first.message)
        # They came in one list, so the burst suffices for them: wait until it is available.
        if bucket.room < min(_batch_in_front(line), rates.rules.burst):
            rates.refused(bucket)
            return 0
        return min(at_most, bucket.room)

    def _alike(self, failed: FailedRecord) -> Alike:
        key: object = None
        if failed.deaths:
            key = failed  # its process may die again, so it is called alone
        elif self.rates is not None:
            key = self.rates.name(failed.partition, failed.message)
        if failed.uncalled:
            key = key, failed.uncalled
        if failed.alone:
            key = failed
        return failed.partition, failed.attempts, key


def _whole_batches(line: RecordLine, most: int) -> list[FailedRecord]:
    """Return the first records of a line: about ``most``, so that no batch is separated."""
    waiting = iter(line)
    records = list(islice(waiting, most))
    behind = next(waiting, None)
    if behind is None or behind.together is None or not _same_batch(records[-1], behind):
        return records
    of_batch = partial(_same_batch, behind)
    first = len(records) - sum(1 for _ in takewhile(of_batch, reversed(records)))
    return records[:first] or [*records, behind, *takewhile(of_batch, waiting)]


def _batch_in_front(line: RecordLine) -> int:
    """Return how many records are called together with the first one."""
    first = next(iter(line))
    if first.together is None:
        return 1
    return sum(1 for _ in takewhile(partial(_same_batch, first), line))


def _same_batch(one: FailedRecord, other: FailedRecord) -> bool:
    return one.together is other.together and one.due == other.due
