"""What follows a failed call: another one, or a copy in a retry topic or among the dead letters.

The rules of the ladder (``policy``), the breaker and users decide here; ``FailedRecords`` keeps the
records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.breaker.departures import Departure
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.policy import (
    JUDGED,
    PARDONED,
    Jitter,
    Retry,
    RetryGroup,
    RetryRules,
    Spent,
    WhenSpent,
)
from window_consumer.engine.retry.record_state import MAY_BE_CHARGED, RecordState
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.model.errors import (
    CallAgain,
    NotCalled,
    ProcessDiedError,
    RetryLater,
    UnreadableHeaders,
)
from window_consumer.model.fault import Failure
from window_consumer.model.record import Message

Judge = Callable[[FailedRecord], Departure]
"""Decides about a record whose attempts are spent; if it must wait, so must those behind it."""


class RetryQueue:
    """Decides about the failed records of one worker. Owner: poll thread."""

    def __init__(
        self, rules: RetryRules, jitter: Jitter, counters: Counters, *, is_broadcast: bool = False
    ):
        self._rules = rules
        self._is_broadcast = is_broadcast
        self._jitter = jitter
        self._counters = counters
        self.records = FailedRecords()
        self._released: deque[FailedRecord] = deque()
        """Records that a user has released; some may be finished already."""
        self.spares = False
        """Failed calls cost no attempt: the breaker is searching for the cause of many failures."""
        self.stop: str | None = None
        """Why the worker must stop, once a rule requires it."""

    # ---- failed calls

    def add(  # noqa: PLR0913 - what a failed call consists of
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
        *,
        still_runs: bool = False,
    ) -> FailedRecord:
        """Record one failed call, or ``calls`` of them, and decide where its record goes next.

        The failed records of a batch share ``together``. The call began at ``called_at``. If it
        still runs, it was abandoned, and the record is not called again beside it: its local
        attempts count as spent.
        """
        error = failure.error
        failed = self.records.of(partition).get(seq)
        if failed is None:
            failed = FailedRecord(partition, message, seq, lane, 0, failure, now, now)
            failed.released = self._rules.is_final
            self.records.enter(failed)
        if not isinstance(error, NotCalled):
            failed.attempts += calls
        failed.failure = failure
        failed.last_failure = now
        failed.first_called_at = failed.first_called_at or called_at
        failed.called_at = called_at or now
        failed.deaths += isinstance(error, ProcessDiedError)
        jitter = self._jitter if together is None else together.jitter
        step = self._next_step(failed, error, jitter, still_runs=still_runs)
        if together is not None:
            failed.together, failed.due = together, now
            step = together.step_of(lane, step)
        if isinstance(step, Retry):
            self.records.wait(failed, now + step.delay_s)
        else:
            self._spend(failed, step)
        return failed

    def _next_step(
        self, failed: FailedRecord, error: BaseException, jitter: Jitter, *, still_runs: bool
    ) -> Retry | Spent:
        """Charge a failed call, unless the breaker spares it, and return what follows."""
        level = failed.partition.retry_level.level
        if isinstance(error, RetryLater):
            failed.asked_later += 1
        if isinstance(error, CallAgain):
            failed.uncalled += 1
            return Retry(error.after_s)
        spares = self.spares and not (failed.released or isinstance(error, NotCalled))
        if spares:
            failed.spared += 1
            failed.in_doubt += 1
        charged = failed.charged
        if failed.released or still_runs:
            charged = max(charged, self._rules.allowed(level))
        step = self._rules.next_step(error, charged, jitter, level, failed.deaths)
        if spares and isinstance(step, Spent) and step.reason in PARDONED:
            return Retry(self._wait_s(failed, max(1, charged)))
        return step

    def _spend(self, failed: FailedRecord, spent: Spent) -> None:
        """Let a record whose attempts are spent leave, now or when the breaker agrees.

        If it is dropped whatever the breaker says, it leaves at once: the caller finishes it.
        """
        failed.spent = spent
        if spent.level is None and spent.end == "stop":
            self.stop = self._why_to_stop(failed)
            self.records.move(failed, RecordState.STOPPING)
            return
        judged = PARDONED if failed.is_dropped else JUDGED
        if spent.reason in judged and not failed.released:
            self.records.move(failed, RecordState.HELD_BY_BREAKER)
        else:
            self.records.move(failed, RecordState.LEAVING)

    def _why_to_stop(self, failed: FailedRecord) -> str:
        """Name the setting that stops the worker; with broadcast one setting decides for all."""
        fault, error = failed.failure.fault, failed.failure.error
        when_spent = f"{'broadcast' if self._is_broadcast else 'retry'}.when_spent"
        if not isinstance(error, NotCalled):
            text = f"failed at attempt {failed.calls} ({fault.error_class})"
            return f"{failed} {text} and {when_spent} is stop"
        is_unroutable = not (self._is_broadcast or isinstance(error, UnreadableHeaders))
        setting = "otherwise" if is_unroutable else when_spent
        return f"{failed} {fault.message}, and {setting} is stop"

    def add_behind(
        self, first: FailedRecord, message: Message, seq: int, now: float
    ) -> FailedRecord:
        """Let a record of a batch be called again with an earlier one of its lane."""
        failed = self.records.of(first.partition).get(seq)
        if failed is None:
            failed = FailedRecord(
                first.partition, message, seq, first.lane, 0, first.failure, now, now
            )
            self.records.enter(failed)
        failed.follow(first, now)
        self.records.wait(failed, first.due)
        return failed

    def together(self) -> RetryGroup:
        """Return a group for the failed records of one batch."""
        return RetryGroup(self._jitter())

    @property
    def when_spent(self) -> WhenSpent:
        """The fate of a record at the end of the ladder."""
        return self._rules.when_spent

    @property
    def is_final(self) -> bool:
        """A record that fails is not called again."""
        return self._rules.is_final

    @property
    def blocks(self) -> bool:
        """A lane waits for its failed record, however long that takes."""
        return not self._rules.moves

    @property
    def writes_dead_letters(self) -> bool:
        """The worker has dead-letter topics, whatever the failure."""
        return self._rules.when_spent == "dead_letter"

    # ---- next calls

    @property
    def has_ready(self) -> bool:
        """The next call of some record may be due."""
        return bool(self.records.ready)

    def next_calls(self, at_most: int) -> list[FailedRecord]:
        """Return the records to call now, see ``FailedRecords.next_calls``."""
        records = self.records.next_calls(at_most)
        self._counters.retried += _after_failures(records)
        return records

    def not_called(self, records: Sequence[FailedRecord]) -> None:
        """Take back records whose next call was dispatched but did not start."""
        self._counters.retried -= _after_failures(records)
        self.records.put_back(records)

    # ---- the breaker

    def charge(self) -> None:
        """Charge the calls that failed before the breaker found poison.

        Records whose attempts are thereby spent get no further call. Walks all failed records.
        """
        spent = [failed for failed in self.records if self._is_spent_now(failed)]
        for failed in sorted(spent, key=attrgetter("last_failure")):
            level = failed.partition.retry_level.level
            error, charged = failed.failure.error, failed.charged
            step = self._rules.next_step(error, charged, self._jitter, level)
            assert isinstance(step, Spent)  # guaranteed by _is_spent_now
            self._spend(failed, step)

    def _is_spent_now(self, failed: FailedRecord) -> bool:
        """Charge a record's calls in doubt; return whether its attempts are thereby spent."""
        failed.spared -= failed.in_doubt
        was_in_doubt, failed.in_doubt = failed.in_doubt > 0, 0
        if not was_in_doubt or failed.spent is not None or failed.together is not None:
            return False
        allowed = self._rules.allowed(failed.partition.retry_level.level)
        may_move = self._rules.moves and failed.state in MAY_BE_CHARGED
        return may_move and failed.charged >= allowed and not (failed.asks_later or failed.deaths)

    def pardon(self) -> None:
        """Let records that were about to leave get one more call, if that can help."""
        for failed in self.records:
            failed.in_doubt = 0
        for failed in list(self.records.spent):
            if may_be_pardoned(failed):
                failed.spent = None
                self.records.move(failed, RecordState.READY)

    def judge(self, judge: Judge, now: float) -> None:
        """Decide about records whose attempts are spent, in the order of their failures."""
        records = self.records
        for _ in range(len(records.spent)):
            failed = records.spent.first
            if failed is None:
                return
            verdict = Departure.LEAVE if failed.released else judge(failed)
            if verdict is Departure.WAIT:
                return
            if verdict is Departure.LEAVE:
                records.move(failed, RecordState.LEAVING)
            elif may_be_pardoned(failed):
                failed.alone = failed.alone or failed.in_batch
                failed.together = None
                failed.spent = None
                records.wait(failed, now + self._wait_s(failed, self._rules.allowed(None)))
            else:
                records.spent.put_last(failed)

    def release(self) -> None:
        """Let all failed records leave if they fail once more, and spent ones now."""
        for failed in self.records:
            failed.released = True
            self._released.append(failed)

    def hold(self) -> None:
        """Take back what ``release`` allowed, except for records on their way."""
        self._released.clear()
        for failed in self.records:
            failed.released = False

    @property
    def has_released(self) -> bool:
        """A released record waits for the call after which it may leave."""
        while self._released and not _waits_for_a_call(self._released[0]):
            self._released.popleft()
        return bool(self._released)

    def _wait_s(self, failed: FailedRecord, failures: int) -> float:
        """Return how long a record waits for a call that is not charged."""
        if isinstance(failed.failure.error, RetryLater):
            return min(failed.failure.error.after_s, self._rules.backoff_max_s)
        return self._rules.backoff(failures, self._jitter)

    def spare(self) -> None:
        """Undo the charges of records whose last call asked to be called later."""
        for failed in self.records:
            if failed.asks_later:
                failed.spared = max(failed.spared, failed.asked_later)


def may_be_pardoned(failed: FailedRecord) -> bool:
    """Return whether a record that is about to leave may be called once more instead."""
    return failed.reason in PARDONED and not failed.publish_failures


def _waits_for_a_call(failed: FailedRecord) -> bool:
    """Return whether a record released by a user has not been called since."""
    partition = failed.partition
    at_rest = failed.state in {RecordState.GONE, RecordState.HELD_BY_RULE}
    still = failed.released and not at_rest
    return still and failed.spent is None and partition.is_assigned and not partition.is_suspended


def _after_failures(records: Iterable[FailedRecord]) -> int:
    """Return how many of these calls follow a failed one; only those are retries."""
    return sum(not isinstance(each.failure.error, CallAgain) for each in records)
