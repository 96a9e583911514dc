"""Outcomes of single records: failures, final outcomes, and what may start after them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from window_consumer.engine.counters import Counters
from window_consumer.engine.observer import Observer
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.policy import PARDONED, RetryGroup
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import CallAgain
from window_consumer.model.fault import Failure
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message


class RecordOutcomes:
    """Records, counts and reports the outcomes of records. Owner: poll thread.

    Every record or call ends here, except in slices whose records are all done.
    """

    def __init__(self, retry_queue: RetryQueue, dispatcher: Dispatcher, counters: Counters):
        self._retry_queue = retry_queue
        self._records = retry_queue.records
        self._dispatcher = dispatcher
        self._counters = counters
        self._news: list[FailedRecord] = []
        self.observer: Observer | None = None

    def take_news(self) -> list[FailedRecord]:
        """Return the calls that have failed since the last time."""
        news, self._news = self._news, []
        return news

    def fail(  # noqa: PLR0913 - what a failed call consists of
        self,
        partition: Partition,
        message: Message,
        seq: int,
        lane: Lane | None,
        failure: Failure,
        now: float,
        calls: int = 1,
        together: RetryGroup | None = None,
        called_at: float = 0.0,
    ) -> FailedRecord:
        """Record a failed call of a record, and report it."""
        failed = self._retry_queue.add(
            partition, message, seq, lane, failure, now, calls, together, called_at
        )
        if isinstance(failure.error, CallAgain):
            return failed  # nothing has failed
        self._news.append(failed)
        if self.observer is not None:
            self.observer.failed(failed, now)
        return failed

    def abandon(  # noqa: PLR0913 - as above
        self,
        partition: Partition,
        message: Message,
        seq: int,
        lane: Lane | None,
        failure: Failure,
        now: float,
        together: RetryGroup | None = None,
        called_at: float = 0.0,
    ) -> None:
        """Record an abandoned call without reporting a failure: its stack was reported."""
        failed = self._retry_queue.add(
            partition,
            message,
            seq,
            lane,
            failure,
            now,
            together=together,
            called_at=called_at,
            still_runs=True,
        )
        if self.observer is not None:
            self.observer.failed(failed, now)
        if failed.is_dropped:
            self.leave(failed, Outcome.DROPPED, now)

    def leave_uncalled(
        self,
        partition: Partition,
        message: Message,
        seq: int,
        lane: Lane | None,
        failure: Failure,
        now: float,
    ) -> None:
        """Let a record leave without a call of a handler; the failure is ``NotCalled``."""
        failed = self.fail(partition, message, seq, lane, failure, now)
        self.drop_spent([failed], now)

    def crashed(
        self,
        partition: Partition,
        message: Message,
        seq: int,
        failure: Failure,
        times: int,
        now: float,
    ) -> None:
        """Let a record that ended the process ``times`` times leave; its lane is busy."""
        lane_of = partition.ordering.lane_of
        lane = None if lane_of is None else lane_of(message)
        failed = self.fail(partition, message, seq, lane, failure, now, times)
        self.drop_spent([failed], now)
        self.advance(partition, now)

    def drop_spent(self, records: Iterable[FailedRecord], now: float) -> None:
        """Drop the spent records that the breaker does not hold, once all failures are recorded."""
        for failed in records:
            is_final = self._retry_queue.is_final or failed.reason not in PARDONED
            if failed.is_dropped and is_final:
                self.leave(failed, Outcome.DROPPED, now)

    def finish(
        self,
        partition: Partition,
        messages: Sequence[Message],
        seqs: Sequence[int],
        outcome: Outcome,
        now: float,
        slice_: Slice | None = None,
    ) -> None:
        """Give records their final outcome, and count and report them; lanes stay held."""
        partition.finish(seqs, outcome, sum(map(len, messages)), now)
        self._counters.count(outcome, len(seqs))
        if self.observer is not None:
            self.observer.finished(partition, messages, outcome, slice_, now)

    def finish_failed(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """Give a failed record an outcome that was already counted, and release its lane."""
        partition = failed.partition
        self._records.finish(failed)
        partition.finish((failed.seq,), outcome, len(failed.message), now)
        if self.observer is not None:
            self.observer.left(failed, outcome, now)

    def leave(self, failed: FailedRecord, usually: Outcome, now: float) -> None:
        """Finish and count a record that has left the ladder."""
        outcome = Outcome.EXPIRED if failed.reason is Reason.EXPIRED else usually
        self._counters.count(outcome, 1)
        if outcome is Outcome.DEAD_LETTERED and failed.reason is Reason.UNROUTABLE:
            self._counters.unroutable += 1
        self.finish_failed(failed, outcome, now)

    def drop(self, failed: FailedRecord, now: float) -> None:
        """Finish a record without a copy."""
        self.leave(failed, Outcome.DROPPED, now)
        self.advance(failed.partition, now)

    def skip(self, failed: FailedRecord, now: float) -> None:
        """Finish a failed record that a user skips."""
        self._counters.count(Outcome.SKIPPED, 1)
        self.finish_failed(failed, Outcome.SKIPPED, now)
        self.advance(failed.partition, now)

    def is_new(self, partition: Partition, seqs: Iterable[int]) -> bool:
        """Return whether a call was the first one of its records."""
        failed = self._records.of(partition)
        return partition.retry_level.level is None and not any(seq in failed for seq in seqs)

    def advance(self, partition: Partition, now: float) -> None:
        """Slide, refill and schedule work after something finished or was released."""
        earlier = partition.slide(now)
        if earlier:
            self._counters.count(Outcome.EARLIER, earlier)
        self._dispatcher.wake(partition)
        for sibling in partition.siblings:
            self._dispatcher.wake(sibling)
