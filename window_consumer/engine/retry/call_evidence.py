"""Evidence for the circuit breaker: which calls returned, failed, or asked to be called later."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from operator import itemgetter

from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.output import Production
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import CallAgain, LeaseExpiredError, RetryLater
from window_consumer.model.headers import Reason

COUNTED = frozenset({None, Reason.RETRIES_EXHAUSTED, Reason.STALLED})
"""The reasons after which a call counts as failed for the breaker; None is a retry."""

NO_EVIDENCE = (CallAgain, LeaseExpiredError)
"""Errors that say nothing about the health of handlers."""


class CallEvidence:
    """Reports to the breaker how calls ended. Owner: poll thread."""

    def __init__(self, breaker: CircuitBreaker):
        self._breaker = breaker

    def called(
        self,
        slice_: Slice,
        done: Iterable[Sequence[int]],
        failed: Iterable[FailedRecord],
        now: float,
    ) -> None:
        """Record the calls of a slice in order, except those without evidence.

        A batch counts as one call, which has returned if any of its records is done.
        """
        calls: list[tuple[int, int, FailedRecord | None]] = [
            (seqs[0], len(seqs), None) for seqs in done
        ]
        calls += [
            (each.seq, 1, each)
            for each in failed
            if each.reason in COUNTED and not isinstance(each.failure.error, NO_EVIDENCE)
        ]
        calls.sort(key=itemgetter(0))
        if slice_.is_batch:
            calls = [each for each in calls if each[2] is None][:1] or calls[:1]
        is_new = slice_.is_new
        for first, count, each in calls:
            if each is None:
                begin = slice_.seqs.index(first)
                self.returned(slice_, range(begin, begin + count), now)
            elif isinstance(error := each.failure.error, RetryLater):
                self._breaker.asked_later(now, error.after_s, slice_, is_new=is_new)
            else:
                self._failed(each, now, slice_, is_new=is_new)

    def returned(self, slice_: Slice, indices: range, now: float) -> None:
        """Record calls of a slice that returned; those of a batch are one."""
        breaker, count = self._breaker, 1 if slice_.is_batch else len(indices)
        if not breaker.counts_calls:
            held = slice_.hold.lanes
            breaker.returned(
                count, now, slice_, is_new=slice_.is_new, lanes=held, began=slice_.started
            )
            if held:
                breaker.lanes_returned(held)
            return
        lanes: list[Hashable] = [None]
        if not slice_.is_batch:
            lanes = [lane_name(slice_.partition, slice_.lane_at(index)) for index in indices]
        breaker.returned(
            count, now, slice_, is_new=slice_.is_new, lanes=lanes, began=slice_.started
        )

    def produced(self, production: Production, now: float, *, is_new: bool) -> None:
        """Record that all results of a call are acked: it counts as returned."""
        lanes = [lane_name(production.partition, lane) for lane in production.lanes]
        calls, source = len(production.seqs), production.source
        self._breaker.returned(calls, now, source, is_new=is_new, lanes=lanes)

    def refused(
        self, production: Production, failed: FailedRecord, now: float, *, is_new: bool
    ) -> None:
        """Record that a call failed because one of its results was refused."""
        if failed.reason in COUNTED:
            self._failed(failed, now, production.source, is_new=is_new)

    def _failed(self, failed: FailedRecord, now: float, source: object, *, is_new: bool) -> None:
        lane = lane_name(failed.partition, failed.lane)
        words = failed.failure.fault.words
        self._breaker.failed(now, words, source, is_new=is_new, lane=lane)


def lane_name(partition: Partition, lane: Lane | None) -> Hashable:
    """Return a lane's name within its worker: all records of a key are in one partition."""
    return lane if lane is None or isinstance(lane, bytes) else (partition.name, lane)
