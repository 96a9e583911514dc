"""Batches on which a slot's process died, halved until the crashing record is alone.

It is unknown on which record of a batch its process died, so none of them is charged. They go out
again at once, in two batches, however few they are. If a process dies while a record runs alone,
that record is charged, and called alone until it leaves.

In a batch with several lanes, each lane stays whole and the halves may run at the same time. In a
batch with one lane, the second half keeps the lane and waits until all of the first half is
finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from attrs import frozen

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.scheduling.rate_limit import RateLimits
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import ProcessDiedError
from window_consumer.model.record import Message


@frozen(eq=False)
class BatchHalf:
    """Records of a batch that ended its process; they go out together."""

    partition: Partition
    messages: list[Message]
    seqs: list[int]
    hold: LaneHold
    """The lanes of its records; records that failed before have their own holds."""
    again: Sequence[FailedRecord] = ()
    """Its records if they had failed before the call that ended the process."""
    after: Sequence[int] = ()
    """Sequence numbers that must all be finished before it goes out."""

    @property
    def may_start(self) -> bool:
        """No record of its lane comes before it."""
        partition = self.partition
        return partition.starts_calls and not any(map(partition.window.is_open, self.after))


class BatchBisection:
    """The undispatched halves of one worker. Owner: poll thread."""

    def __init__(self, failed_records: FailedRecords):
        self._failed_records = failed_records
        self._waiting: dict[Partition, list[BatchHalf]] = {}

    def bisect(self, slice_: Slice) -> None:
        """Split a batch that ended its process; its lanes are held until its halves go out."""
        partition = slice_.partition
        lanes = [slice_.lane_at(index) for index in range(len(slice_.messages))]
        halves: list[BatchHalf] = []
        first, second = parted(lanes)
        in_one_lane = lanes[0] is not None and len(set(lanes)) == 1
        for indices in (first, second):
            seqs = [slice_.seqs[index] for index in indices]
            again = [slice_.again[seq] for seq in seqs if seq in slice_.again]
            for failed in again:
                self._failed_records.move(failed, RecordState.CHOSEN)
            half = BatchHalf(
                partition,
                [slice_.messages[index] for index in indices],
                seqs,
                partition.ordering.acquire(() if again else (lanes[index] for index in indices)),
                again,
                halves[0].seqs if halves and in_one_lane else (),
            )
            halves.append(half)
        self._waiting[partition] = halves + self._waiting.get(partition, [])

    def next(self, rates: RateLimits | None) -> BatchHalf | None:
        """Take the next half that may go out; None if none may."""
        for half in chain.from_iterable(self._waiting.values()):
            if half.may_start and (
                rates is None or rates.may_all_start(half.partition, half.messages)
            ):
                waiting = self._waiting[half.partition]
                waiting.remove(half)
                if not waiting:
                    del self._waiting[half.partition]
                return half
        return None

    def start(self, half: BatchHalf) -> None:
        """Record that a half whose records failed before goes out."""
        self._failed_records.start(half.again)

    def dissolve(self, partition: Partition) -> None:
        """Put the records of undispatched halves back, to wait like any others."""
        halves = self._waiting.pop(partition, ())
        records: list[tuple[int, Message]] = []
        for half in halves:
            if half.again:
                # They hold their own lanes, and may have to wait for their first half.
                if partition.is_suspended:
                    for failed in half.again:
                        self._failed_records.move(failed, RecordState.READY)
                else:
                    self._waiting.setdefault(partition, []).append(half)
                continue
            records += zip(half.seqs, half.messages, strict=True)
        if records:
            records.sort(key=lambda record: record[0])
            partition.ordering.put_back(
                [message for _, message in records], [seq for seq, _ in records]
            )
        for half in halves:
            if not half.again:
                half.hold.release()

    def remove(self, partition: Partition) -> None:
        """Discard the halves of a released partition."""
        self._waiting.pop(partition, None)

    def partitions(self) -> list[Partition]:
        """Return the partitions that have halves."""
        return list(self._waiting)


def died_on(slice_: Slice) -> bool:
    """Return whether a slice is a batch of several records whose process ended."""
    noted = slice_.deviations
    if noted is None or not slice_.is_batch or len(slice_.messages) < 2:
        return False
    return len(noted.failed) == len(slice_.messages) and all(
        type(failure.error) is ProcessDiedError for _, failure in noted.failed
    )


def parted(lanes: Sequence[Lane | None]) -> tuple[list[int], list[int]]:
    """Return the indices of the two halves, in order; each None is its own lane.

    No lane is in both, unless there is only one.
    """
    groups: dict[Lane, list[int]] = {}
    for index, lane in enumerate(lanes):
        groups.setdefault(index if lane is None else lane, []).append(index)
    if len(groups) == 1:
        middle = len(lanes) // 2
        return list(range(middle)), list(range(middle, len(lanes)))
    first: list[int] = []
    for group in groups.values():
        if first and 2 * len(first) + len(group) >= len(lanes):
            break
        first += group
    chosen = set(first)
    return sorted(first), [index for index in range(len(lanes)) if index not in chosen]
