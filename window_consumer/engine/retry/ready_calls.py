"""Failed records whose next call is due, in lines of those that may share a slice.

They are called in the order in which they became due. Where a full window takes in nothing, every
second call is for its start cell: only that lets the window slide. The other calls are for the
rest, as the start cell's records may fail for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import takewhile
from weakref import WeakKeyDictionary

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.policy import FailedRecord
from window_consumer.engine.scheduling.rate_limit import RateLimits

Alike = tuple[Partition, int, object]
"""What records that may share a slice have in common: partition, attempts, and the key if each key
has a rate."""

Lines = dict[Alike, deque[FailedRecord]]
"""The line whose first record is called next is in front."""


class ReadyCalls:
    """Failed records of one worker that may be called. Owner: poll thread."""

    def __init__(self) -> None:
        self.rates: RateLimits | None = None
        """Set if a rate limits calls."""
        self._usual: Lines = {}
        self._urgent: Lines = {}
        """Those of the start cells of full windows."""
        self._dry: Lines = {}
        """Those that were found to wait for their rate since the last check."""
        self._urgent_next = True
        self._searched: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()
        """The number of the start cell for which the lines of a full window were searched."""

    def __bool__(self) -> bool:
        """The next call of some record may be due."""
        return bool(self._usual or self._urgent)

    def add(self, records: Iterable[FailedRecord]) -> None:
        """Add records, each at the end of its line."""
        for failed in records:
            self._line_of(failed, end=-1).append(failed)

    def put_back(self, records: Sequence[FailedRecord]) -> None:
        """Add records whose call was dispatched and did not start, in front."""
        for failed in reversed(records):
            self._line_of(failed, end=0).appendleft(failed)

    def remove(self, failed: FailedRecord) -> bool:
        """Remove a record; return False if it is not among them. Walks all of them."""
        for lines in (self._usual, self._urgent, self._dry):
            for alike, line in lines.items():
                if failed in line:
                    line.remove(failed)
                    if not line:
                        del lines[alike]
                    return True
        return False

    def remove_all(self, records: Iterable[FailedRecord]) -> list[FailedRecord]:
        """Remove those of these records that are among them, and return them."""
        wanted, found = set(records), []
        for lines in (self._usual, self._urgent, self._dry):
            for alike, line in list(lines.items()):
                if not wanted.isdisjoint(line):
                    found += [each for each in line if each in wanted]
                    lines[alike] = deque(each for each in line if each not in wanted)
                    if not lines[alike]:
                        del lines[alike]
        return found

    def refill(self) -> None:
        """Look again at the records that waited for their rate: they became ready first."""
        if self._dry:
            usual, self._usual, self._dry = self._usual, self._dry, {}
            for alike, line in usual.items():
                self._usual.setdefault(alike, deque()).extend(line)

    def take(self, at_most: int) -> list[FailedRecord]:
        """Return records of one partition and equal attempts, which are called now.

        Empty if there are none. Records of a batch that are called again together are not
        separated, so there may be more than ``at_most``, but never more than a batch holds.
        """
        while self:
            self._search()
            urgent = bool(self._urgent) and (self._urgent_next or not self._usual)
            records = self._take_from(self._urgent if urgent else self._usual, at_most)
            if records:
                self._urgent_next = not urgent
                return records
        return []

    def _search(self) -> None:
        """Make the next line's records urgent that are in the start cell of a full window.

        A window's lines are searched once for each start cell.
        """
        for partition, _, _ in self._usual:
            cell = partition.window.slid
            if partition.is_full and self._searched.get(partition) != cell:
                self._searched[partition] = cell
                for alike in [each for each in self._usual if each[0] is partition]:
                    self.add(self._usual.pop(alike))
            return

    def _take_from(self, lines: Lines, at_most: int) -> list[FailedRecord]:
        """Take from the first line; remove it if nothing of it can be called now."""
        alike = partition, _, _ = next(iter(lines))
        line = lines.pop(alike)
        if not partition.may_start:
            partition.held_calls.extend(line)
            return []
        if not partition.is_active:
            return []
        room = self._room(line, at_most)
        if not room:
            self._dry.setdefault(alike, deque()).extend(line)
            return []
        records = [line.popleft() for _ in range(min(room, len(line)))]
        if line and records[-1].together is not None:
            _keep_together(records, line)
        if line:
            lines[alike] = line
        return records

    def _room(self, line: Sequence[FailedRecord], at_most: int) -> int:
        """Return how many records of a line may be called now."""
        rates = self.rates
        if rates is None:
            return at_most
        partition, message = line[0].partition, line[0].message
        if not rates.may_start(partition, message):
            return 0
        bucket = rates.bucket(partition, message)
        # They came in one list, so the burst suffices for them: they wait until it is available.
        if bucket.room < min(_batch_in_front(line), rates.rules.burst):
            rates.refused(bucket)
            return 0
        return min(at_most, bucket.room)

    def _line_of(self, failed: FailedRecord, *, end: int) -> deque[FailedRecord]:
        """Return a record's line: that of its batch if its batch is at this end of one."""
        alike = self._alike(failed)
        if failed.together is not None:
            for lines in (self._urgent, self._usual):
                line = lines.get(alike)
                if line and _same_batch(line[end], failed):
                    return line
        partition, cells = failed.partition, failed.partition.window.cells
        is_urgent = partition.is_full and cells and failed.seq < cells[0].end_seq
        return (self._urgent if is_urgent else self._usual).setdefault(alike, deque())

    def _alike(self, failed: FailedRecord) -> Alike:
        key: object = None
        if failed.deaths:
            key = failed  # its process may die again: it is called alone
        elif self.rates is not None and self.rates.rules.per == "key":
            key = failed.message.key()
        if failed.uncalled:
            key = key, failed.uncalled
        if failed.alone:
            key = failed
        return failed.partition, failed.attempts, key


def _keep_together(records: list[FailedRecord], line: deque[FailedRecord]) -> None:
    """Move records between this call and the waiting line, so that no batch is separated."""
    last = records[-1]
    if not _same_batch(last, line[0]):
        return
    first = len(records) - 1
    while first and _same_batch(last, records[first - 1]):
        first -= 1
    if first:
        line.extendleft(reversed(records[first:]))
        del records[first:]
    else:
        while line and _same_batch(last, line[0]):
            records.append(line.popleft())


def _batch_in_front(line: Sequence[FailedRecord]) -> int:
    """Return how many records are called together with the first one."""
    if line[0].together is None:
        return 1
    return sum(1 for _ in takewhile(partial(_same_batch, line[0]), line))


def _same_batch(one: FailedRecord, other: FailedRecord) -> bool:
    return one.together is other.together and one.due == other.due
