"""Places for failed records: in a line, or sorted by the time that they wait for."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Protocol
from weakref import WeakKeyDictionary

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.record_state import RecordState

_NONE: Mapping[int, FailedRecord] = {}

_STALE = 64
"""A heap keeps this many removed entries, or as many as it has live ones."""


class Places(Protocol):
    """The place of all records in one state."""

    @property
    def state(self) -> RecordState:
        """The state of all records in them."""

    def __len__(self) -> int:
        """Return how many records are there."""

    def append(self, failed: FailedRecord) -> None:
        """Add a record; from now on ``failed.place`` is this place."""


class RecordLine:
    """Records of one state, in order; every operation is O(1). Owner: poll thread."""

    __slots__ = ("_records", "state")

    def __init__(self, state: RecordState):
        self.state = state
        self._records: OrderedDict[FailedRecord, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[FailedRecord]:
        return iter(self._records)

    def __contains__(self, failed: object) -> bool:
        return failed in self._records

    @property
    def first(self) -> FailedRecord | None:
        """The record in front."""
        return next(iter(self._records), None)

    @property
    def last(self) -> FailedRecord | None:
        """The record at the end."""
        return next(reversed(self._records), None)

    def append(self, failed: FailedRecord) -> None:
        """Add a record at the end."""
        self._records[failed] = None
        failed.place = self

    def put_first(self, failed: FailedRecord) -> None:
        """Add a record in front, or move it there."""
        self.append(failed)
        self._records.move_to_end(failed, last=False)

    def put_last(self, failed: FailedRecord) -> None:
        """Move a record to the end."""
        self._records.move_to_end(failed)

    def remove(self, failed: FailedRecord) -> None:
        """Remove a record."""
        del self._records[failed]


class RuleHeldRecords:
    """Records that are held until released, by partition and offset. Owner: poll thread."""

    __slots__ = ("by_partition",)
    state = RecordState.HELD_BY_RULE

    def __init__(self) -> None:
        self.by_partition: dict[Partition, dict[int, FailedRecord]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_partition.values()))

    def get(self, partition: Partition, offset: int) -> FailedRecord | None:
        """Return a record that is here."""
        return self.by_partition.get(partition, _NONE).get(offset)

    def append(self, failed: FailedRecord) -> None:
        """Add a record."""
        records = self.by_partition.setdefault(failed.partition, {})
        records[failed.message.offset()] = failed
        failed.place = self

    def remove(self, failed: FailedRecord) -> None:
        """Remove a record."""
        records = self.by_partition[failed.partition]
        del records[failed.message.offset()]
        if not records:
            del self.by_partition[failed.partition]


class KeptElsewhere:
    """Records of a slice, results or a stop; here they are only counted. Owner: poll thread."""

    __slots__ = ("_count", "state")

    def __init__(self, state: RecordState):
        self.state = state
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, failed: FailedRecord) -> bool:
        return failed.place is self

    def append(self, failed: FailedRecord) -> None:
        """Add a record."""
        self._count += 1
        failed.place = self

    def remove(self, _failed: FailedRecord) -> None:
        """Remove a record."""
        self._count -= 1


class WaitingRecords:
    """Records that wait until they are due; each operation is O(log n). Owner: poll thread."""

    state = RecordState.WAITING

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, FailedRecord]] = []
        """Due times and records, earliest first. Entries of removed records stay until they come
        first or are too many."""
        self._numbers = count()
        self._len = 0

    def __len__(self) -> int:
        return self._len

    def __contains__(self, failed: FailedRecord) -> bool:
        return failed.place is self

    @property
    def first(self) -> FailedRecord | None:
        """The record that is due first."""
        return self._heap[0][2] if self._heap else None

    def append(self, failed: FailedRecord) -> None:
        """Let a record wait until it is ``due``."""
        number = failed.entry = next(self._numbers)
        heapq.heappush(self._heap, (failed.due, number, failed))
        self._len += 1
        failed.place = self

    def take_due(self, now: float) -> Iterator[FailedRecord]:
        """Remove and yield the records that are due; the caller gives each a new place."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, number, failed = heapq.heappop(heap)
            if failed.entry == number:
                self._len -= 1
                yield failed
        self._drop_removed()

    def remove(self, failed: FailedRecord) -> None:
        """Remove a record."""
        heap = self._heap
        failed.entry = None
        self._len -= 1
        self._drop_removed()
        if len(heap) > 2 * self._len + _STALE:
            heap[:] = [entry for entry in heap if entry[2].entry == entry[1]]
            heapq.heapify(heap)

    def _drop_removed(self) -> None:
        """Drop the entries of removed records from the front."""
        heap = self._heap
        while heap and heap[0][2].entry != heap[0][1]:
            heapq.heappop(heap)


class HeldCalls:
    """Records that wait for their partition, in a line for each. Owner: poll thread."""

    state = RecordState.HELD_BY_PARTITION

    def __init__(self) -> None:
        self._lines: WeakKeyDictionary[Partition, RecordLine] = WeakKeyDictionary()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def of(self, partition: Partition) -> Collection[FailedRecord]:
        """Return the records that a partition holds."""
        return self._lines.get(partition, ())

    def append(self, failed: FailedRecord) -> None:
        """Let a record wait for its partition."""
        line = self._lines.get(failed.partition)
        if line is None:
            line = self._lines[failed.partition] = RecordLine(RecordState.HELD_BY_PARTITION)
        line.append(failed)
