"""Records of a slice that wait for an earlier failed record of their lane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from window_consumer.engine.retry.policy import FailedRecord
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.scheduling.slices import Slice, SliceResults


def put_back(
    slice_: Slice,
    held: Sequence[int],
    failed: Iterable[FailedRecord],
    failures: RetryQueue,
    now: float,
) -> None:
    """Let the records at ``held``, which were not called, wait for a failed one."""
    messages, seqs = slice_.messages, slice_.seqs
    partition = slice_.partition
    if slice_.call.attempt == 1:
        partition.ordering.put_back([messages[i] for i in held], [seqs[i] for i in held])
        return
    waiting = {each.lane: each for each in failed if each.reason is None}
    for index in held:
        again = partition.failed[seqs[index]]
        if again.lane is not None and again.lane in waiting:
            failures.add_behind(waiting[again.lane], messages[index], seqs[index], now)
        else:
            failures.not_called([again])


def call_behind(
    slice_: Slice, behind: Mapping[Lane | None, FailedRecord], failures: RetryQueue, now: float
) -> SliceResults:
    """Let the later records of blocking lanes be called again, whatever their result.

    ``behind`` holds the first failed record of each such lane. Return the other results of the
    slice.
    """
    again = set()
    for index, (message, seq) in enumerate(zip(slice_.messages, slice_.seqs, strict=True)):
        first = behind.get(lane_in(slice_, index))
        if first is not None and seq > first.seq:
            again.add(index)
            failures.add_behind(first, message, seq, now)
    return slice_.results(but=again)


def lane_in(slice_: Slice, index: int) -> Lane | None:
    """Return the lane of the record at ``index``; None if it is unordered."""
    if slice_.lane_of is not None:
        return slice_.lane_of(slice_.messages[index])
    failed = slice_.partition.failed.get(slice_.seqs[index])
    return failed.lane if failed else None
