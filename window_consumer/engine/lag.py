"""How far a partition is behind, in records and in seconds.

The lag in records shows how much work is left; in seconds, how long the oldest record has waited. A
hundred records are nothing for a busy topic, and a lost day for a quiet one. Records that are not
due yet count in neither.
"""

from __future__ import annotations

from collections.abc import Iterable

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.windows_snapshot import Lag
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, Message


def lag_of(
    partition: Partition,
    slices: Iterable[Slice],
    failed: Iterable[FailedRecord],
    now: float,
    wall_ms: float,
) -> Lag:
    """Return how far a partition is behind, with its slices in progress and failed records.

    Walks the records in progress and at the front of the queue: for display, not for every turn of
    the poll thread.
    """
    oldest = min(_candidates(partition, slices, failed, now), key=_offset, default=None)
    seconds = 0.0 if oldest is None else _age_s(partition, oldest, wall_ms)
    return Lag(_records(partition, now), seconds)


def _candidates(
    partition: Partition, slices: Iterable[Slice], failed: Iterable[FailedRecord], now: float
) -> Iterable[Message]:
    """Yield unfinished records, including the oldest one.

    A record that waits behind another of its lane is younger than that one.
    """
    for slice_ in slices:
        if slice_.messages:
            yield slice_.messages[0]
    for each in failed:
        yield each.message
    waiting = partition.ordering.oldest
    if waiting is not None:
        yield waiting
    if partition.buffer and partition.next_due <= now:
        yield partition.buffer[0][1][0]


def _records(partition: Partition, now: float) -> int | None:
    if partition.log_end is None:
        return None
    if partition.retry_level.level is None:
        return max(0, partition.log_end - partition.window.next_offset)
    due = [len(messages) for at, messages in partition.buffer if at <= now]
    unread = max(0, partition.log_end - partition.next_delivery)
    # Copies in a level are ordered by due time.
    all_due = len(due) == len(partition.buffer)
    return partition.window.open + sum(due) + (unread if all_due else 0)


def _age_s(partition: Partition, message: Message, wall_ms: float) -> float:
    if partition.retry_level.level is not None:
        return max(0.0, -partition.retry_level.wait_s(message, wall_ms))
    kind, written_ms = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE or written_ms <= 0:
        return 0.0
    return max(0.0, (wall_ms - written_ms) / 1000)


def _offset(message: Message) -> int:
    return int(message.offset())
