"""Backpressure: which partitions may take in more, which are paused, how many records to request.

A window bounds records. The budget bounds bytes, over all partitions of a worker: it is the part of
the configured ``memory`` that the client's prefetch leaves.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from window_consumer.engine.deliveries import DeliveryBuffer
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.window import Window

BATCH_SHARE = 0.125
"""The share of the budget that one batch should use at most: its size is known only afterwards."""

_FORGET = 0.95
"""The decay of the usual record size: a batch of small records reduces it by a twentieth."""

BUFFER_BATCHES = 2
"""How many batches a partition with a full window may buffer before it is paused. With one failure
in a hundred, a window now and then stays full until the retries are done; pausing and refetching
each time halved the rate of a fast handler."""

WAITING_CELLS = 4
"""How many cells of records that are not due a partition may buffer."""

RESUME_ROOM = 0.25
"""A paused partition resumes when this share of its window is free, because resuming costs a
fetch."""

RESUME_USED = 0.75
"""A partition paused for the budget resumes when at most this share of the budget is used."""


class PartitionLoad(Protocol):
    """A partition's use of records and bytes."""

    bytes: int
    buffer: DeliveryBuffer
    is_fetched: bool
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
        """Update the usual size of a record from a delivered batch: up at once, down slowly."""
        self._usual_size = max(size / records, self._usual_size * _FORGET)

    def allows(self, partition: PartitionLoad, partitions: int) -> bool:
        """Return whether a partition may take in more.

        It may take up to its equal share, and more while it holds less than what is free. A
        partition that holds nothing may always take one batch: a record larger than the whole
        budget passes alone.
        """
        held = partition.bytes
        if held == 0:
            return True
        free = self.limit - self.used
        return free > 0 and (held < self.limit / max(1, partitions) or held < free)

    def has_room_for(self, size: int) -> bool:
        """Return whether ``size`` more bytes stay within the limit."""
        return self.used + size <= self.limit

    def batch_records(self) -> int:
        """How many records to request at once."""
        if not self._usual_size:
            return self._batch_records
        fitting = int(self.limit * BATCH_SHARE / self._usual_size)
        return max(1, min(self._batch_records, fitting))

    def should_pause(self, partition: PartitionLoad, partitions: Collection[PartitionLoad]) -> bool:
        """Return whether a partition has taken in as much as it may.

        Bytes are a reason to pause only while another partition may take records. If none may,
        nothing is requested anyway, and prefetched data is not discarded.
        """
        if not partition.is_fetched:
            return False
        if partition.buffer.records >= self._most_buffered(partition):
            return True
        return not self.allows(partition, len(partitions)) and (
            self.used > self.limit * (1 + BATCH_SHARE) or self.wanted(partitions)
        )

    def should_resume(
        self, partition: PartitionLoad, partitions: Collection[PartitionLoad]
    ) -> bool:
        """Return whether a paused partition has enough room to resume."""
        if partition.is_fetched or HoldReason.METADATA_FULL in partition.holds:
            return False
        if partition.buffer.records > (
            self._most_buffered(partition) / 2 if _waits(partition) else 0
        ):
            return False
        window = partition.window
        return window.room >= RESUME_ROOM * window.capacity and (
            partition.bytes == 0
            or (self.used <= RESUME_USED * self.limit and self.allows(partition, len(partitions)))
        )

    def wanted(self, partitions: Collection[PartitionLoad]) -> bool:
        """Return whether any partition could take a record now."""
        count = len(partitions)
        return any(
            partition.is_fetched
            and HoldReason.METADATA_FULL not in partition.holds
            and (not partition.buffer or _waits(partition))
            and self.allows(partition, count)
            for partition in partitions
        )

    def _most_buffered(self, partition: PartitionLoad) -> int:
        return self._waiting_records if _waits(partition) else self._buffer_records


def _waits(partition: PartitionLoad) -> bool:
    """Return whether the partition's records wait until they are due."""
    return partition.retry_level.level is not None
