"""Backpressure: who may take in more, who is paused, and how many records to ask for.

A window bounds records. The budget bounds bytes, over all partitions of a worker: it is what the
configured ``memory`` leaves beside the client's prefetch.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.window import Window

BATCH_SHARE = 0.125
"""One batch should bring at most this share of the budget: it is measured only afterwards."""

_FORGET = 0.95
"""A batch of small records lets the usual size of a record fall by a twentieth."""

BUFFER_BATCHES = 2
"""A partition whose window is full may hold so many batches in its buffer before it is paused. With
one failure in a hundred a window is full every now and then until the retries are through; pausing
each time, and fetching anew, halved the rate of a fast handler."""

WAITING_CELLS = 4
"""A partition whose records wait until they are due may hold so many cells of them."""

RESUME_ROOM = 0.25
"""A paused partition goes on when this share of its window is free: resuming costs a fetch."""

RESUME_USED = 0.75
"""... and the budget, where that was the reason, is used no further than this."""


class PartitionLoad(Protocol):
    """A partition, as far as it takes room."""

    bytes: int
    buffered: int
    paused: bool
    window: Window
    retry_level: RetryTopicLevel
    holds: frozenset[HoldReason]


class MemoryBudget:
    """The bytes of unfinished records that one worker may hold. Owner: poll thread."""

    def __init__(self, limit: int, batch_records: int, cell_records: int):
        self.limit = limit
        self.used = 0
        self._batch_records = batch_records
        self._buffer_records = BUFFER_BATCHES * batch_records
        self._waiting_records = WAITING_CELLS * cell_records
        self._usual_size = 0.0

    def record_sizes(self, records: int, size: int) -> None:
        """Learn the usual size of a record from a delivered batch: up at once, down slowly."""
        self._usual_size = max(size / records, self._usual_size * _FORGET)

    def allows(self, partition: PartitionLoad, partitions: int) -> bool:
        """Tell whether a partition may take in more.

        It may up to its equal share, and beyond it as long as it holds less than what is free.
        With an empty hand it may always take one batch: a record larger than the whole budget
        passes alone.
        """
        held = partition.bytes
        if held == 0:
            return True
        free = self.limit - self.used
        return free > 0 and (held < self.limit / max(1, partitions) or held < free)

    def has_room_for(self, size: int) -> bool:
        """Tell whether so many more bytes stay within the limit."""
        return self.used + size <= self.limit

    def batch_records(self) -> int:
        """How many records to ask for at once."""
        if not self._usual_size:
            return self._batch_records
        fitting = int(self.limit * BATCH_SHARE / self._usual_size)
        return max(1, min(self._batch_records, fitting))

    def should_pause(self, partition: PartitionLoad, partitions: Collection[PartitionLoad]) -> bool:
        """Tell whether a partition has taken in as much as it may.

        Bytes are a reason to pause only while another partition may go on: where none may,
        nothing is asked for anyway, and what was prefetched is not thrown away.
        """
        if partition.paused:
            return False
        if partition.buffered >= self._most_buffered(partition):
            return True
        return not self.allows(partition, len(partitions)) and (
            self.used > self.limit * (1 + BATCH_SHARE) or self.wanted(partitions)
        )

    def should_resume(
        self, partition: PartitionLoad, partitions: Collection[PartitionLoad]
    ) -> bool:
        """Tell whether a paused partition has enough room to go on."""
        if not partition.paused or HoldReason.METADATA_FULL in partition.holds:
            return False
        if partition.buffered > (self._most_buffered(partition) / 2 if _waits(partition) else 0):
            return False
        window = partition.window
        return window.room >= RESUME_ROOM * window.capacity and (
            partition.bytes == 0
            or (self.used <= RESUME_USED * self.limit and self.allows(partition, len(partitions)))
        )

    def wanted(self, partitions: Collection[PartitionLoad]) -> bool:
        """Tell whether any partition could take a record now."""
        count = len(partitions)
        return any(
            not (partition.paused or HoldReason.METADATA_FULL in partition.holds)
            and (not partition.buffered or _waits(partition))
            and self.allows(partition, count)
            for partition in partitions
        )

    def _most_buffered(self, partition: PartitionLoad) -> int:
        return self._waiting_records if _waits(partition) else self._buffer_records


def _waits(partition: PartitionLoad) -> bool:
    """Tell whether the partition's records have to wait until they are due."""
    return partition.retry_level.level is not None
