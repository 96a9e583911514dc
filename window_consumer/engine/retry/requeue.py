"""Records of a slice that wait for an earlier failed record of their lane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.scheduling.slice_results import SliceResults
from window_consumer.engine.scheduling.slices import Slice


def put_back(
    slice_: Slice,
    held: Sequence[int],
    failed: Iterable[FailedRecord],
    retry_queue: RetryQueue,
    now: float,
) -> None:
    """Let the uncalled records at ``held`` wait for a failed one."""
    messages, seqs = slice_.messages, slice_.seqs
    if slice_.call.attempt == 1:
        ordering = slice_.partition.ordering
        ordering.put_back([messages[i] for i in held], [seqs[i] for i in held])
        return
    waiting = {each.lane: each for each in failed if each.reason is None}
    for index in held:
        again = slice_.again[seqs[index]]
        if again.lane is not None and again.lane in waiting:
            retry_queue.add_behind(waiting[again.lane], messages[index], seqs[index], now)
        else:
            retry_queue.not_called([again])


def call_behind(
    slice_: Slice, behind: Mapping[Lane | None, FailedRecord], retry_queue: RetryQueue, now: float
) -> SliceResults:
    """Let the later records of blocking lanes be called again, whatever their results.

    ``behind`` holds the first failed record of each such lane. Return the other results of the
    slice.
    """
    again = set()
    for index, (message, seq) in enumerate(zip(slice_.messages, slice_.seqs, strict=True)):
        first = behind.get(slice_.lane_at(index))
        if first is not None and seq > first.seq:
            again.add(index)
            retry_queue.add_behind(first, message, seq, now)
    return slice_.results(but=again)
