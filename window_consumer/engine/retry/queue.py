"""Failed records: which wait for the next call, and which for an acknowledged copy.

A waiting record occupies no slot. A record that leaves is finished only when the broker has
acknowledged its copy. Until then it is open, its lane is busy and its offset is held.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.guards.departures import Departure
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.policy import (
    PUBLISH_BACKOFF,
    Detail,
    FailedRecord,
    Jitter,
    Retry,
    RetryRules,
    Spent,
    WhenSpent,
)
from window_consumer.engine.retry.ready_calls import ReadyCalls
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.model.errors import (
    CallAgain,
    NotCalled,
    ProcessDiedError,
    PublishFailedError,
    RetryLater,
    UnreadableHeaders,
)
from window_consumer.model.fault import Failure
from window_consumer.model.headers import Reason
from window_consumer.model.record import Message

PARDONED = frozenset({Reason.RETRIES_EXHAUSTED})
"""Reasons to leave that another call may resolve once the cause is over. The call of a stalled
record may still be running."""

JUDGED = PARDONED | {Reason.STALLED}
"""Reasons to leave about which the breaker decides: an outage causes them, too."""


class RetryGroup:
    """Lets the failed records of one batch continue together. Owner: poll thread.

    Records with equal waits come back in one batch, so they share one jitter. All records of a lane
    that may be called again take the step of the first. Otherwise two of them could be called at
    once, or the later one first.
    """

    def __init__(self, draw: float):
        self._draw = draw
        self._steps: dict[Lane, Retry | Spent] = {}

    def jitter(self) -> float:
        """Return the same number for all of them."""
        return self._draw

    def step_of(self, lane: Lane | None, step: Retry | Spent) -> Retry | Spent:
        """Return a record's next step: its own, or that of the first record of its lane."""
        leaves_alone = isinstance(step, Spent) and step.reason not in PARDONED
        if lane is None or leaves_alone:
            return step
        return self._steps.setdefault(lane, step)


MAX_UNACKED = 1000
"""The most copies in flight to the broker: enough for its batches, little to hold twice."""

Judge = Callable[[FailedRecord], Departure]
"""Decides about a record whose attempts are spent; if it waits, those behind it wait too."""


class RetryQueue:
    """The failed records of one worker. Owner: poll thread."""

    def __init__(self, rules: RetryRules, jitter: Jitter, counters: Counters):
        self._rules = rules
        self._jitter = jitter
        self._counters = counters
        self._due: list[tuple[float, int, FailedRecord]] = []
        self._ties = count()
        self.ready = ReadyCalls()
        """Records whose next call is due."""
        self._leaving: deque[FailedRecord] = deque()
        """Records that leave whatever the breaker says."""
        self._released: deque[FailedRecord] = deque()
        """Records that a user has released; some may be finished."""
        self._spent: deque[FailedRecord] = deque()
        """Records whose attempts are spent: the breaker decides about them."""
        self.spares = False
        """Calls that fail cost no attempt: the breaker is finding out why many fail."""
        self.unacked = 0
        """Copies in flight to the broker."""
        self.stop: str | None = None
        """Why the worker has to stop, once a rule requires it."""

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
    ) -> FailedRecord:
        """Record one failed call, or ``calls`` of them, and decide where its record goes next.

        ``together`` is what it shares with the other failed records of its batch. The call began
        at ``called_at``.
        """
        failed = partition.failed.get(seq)
        if failed is None:
            failed = FailedRecord(partition, message, seq, lane, 0, failure, now, now)
            partition.on_first_failure(failed)
        if not isinstance(failure.error, NotCalled):
            failed.attempts += calls
        failed.failure = failure
        failed.last_failure = now
        failed.called_at = called_at or now
        failed.deaths += isinstance(failure.error, ProcessDiedError)
        jitter = self._jitter if together is None else together.jitter
        step = self._next_step(failed, failure.error, jitter)
        if together is not None:
            failed.together, failed.due = together, now
            step = together.step_of(lane, step)
        if isinstance(step, Retry):
            failed.due = now + step.delay_s
            self._wait(failed)
            return failed
        self._leave(failed, step)
        return failed

    def _leave(self, failed: FailedRecord, step: Spent) -> None:
        """Let a record go where the rules say, as soon as the breaker allows it."""
        failed.reason, failed.end, failed.level = step.reason, step.end, step.level
        held = failed.is_dropped and failed.reason in PARDONED
        if failed.level is not None or failed.end == "dead_letter" or held:
            failed.is_decided = failed.reason not in JUDGED or failed.released
            (self._leaving if failed.is_decided else self._spent).append(failed)
        elif failed.end == "stop":
            self.stop = _why_to_stop(failed)

    def _next_step(
        self, failed: FailedRecord, error: BaseException, jitter: Jitter
    ) -> Retry | Spent:
        """Charge a failed call, unless the breaker spares it, and return what follows."""
        level = failed.partition.retry_level.level
        failed.asked_later += isinstance(error, RetryLater)
        if isinstance(error, CallAgain):
            failed.uncalled += 1
            return Retry(error.after_s)
        spares = self.spares and not (failed.released or isinstance(error, NotCalled))
        failed.spared += spares
        failed.in_doubt += spares
        charged = failed.charged
        if failed.released:
            charged = max(charged, self._rules.allowed(level))
        step = self._rules.next_step(error, charged, jitter, level, failed.deaths)
        if spares and isinstance(step, Spent) and step.reason in PARDONED:
            return Retry(self._wait_s(failed, max(1, charged)))
        return step

    def add_behind(
        self, first: FailedRecord, message: Message, seq: int, now: float
    ) -> FailedRecord:
        """Let a record of a batch be called again with an earlier one of its lane."""
        partition = first.partition
        failed = partition.failed.get(seq)
        if failed is None:
            lane = first.lane
            failed = FailedRecord(partition, message, seq, lane, 0, first.failure, now, now)
            partition.on_first_failure(failed)
        failed.attempts, failed.failure, failed.last_failure = first.attempts, first.failure, now
        failed.asked_later, failed.spared = first.asked_later, first.spared
        failed.in_doubt, failed.uncalled = first.in_doubt, first.uncalled
        failed.due, failed.together = first.due, first.together
        self._wait(failed)
        return failed

    def together(self) -> RetryGroup:
        """Return a group for the failed records of one batch."""
        return RetryGroup(self._jitter())

    @property
    def when_spent(self) -> WhenSpent:
        """What happens to a record at the end of the ladder."""
        return self._rules.when_spent

    @property
    def blocks(self) -> bool:
        """A lane waits for its failed record, however long that takes."""
        return self._rules.on_failure == "block"

    @property
    def writes_dead_letters(self) -> bool:
        """The worker has dead-letter topics, whatever the failure."""
        return self._rules.when_spent == "dead_letter"

    def take_out(self, failed: FailedRecord) -> bool:
        """Remove a record that waits for its next call or to leave; False if it does not wait.

        Walks all waiting records; only a user's request needs it.
        """
        waiting = len(self._due)
        self._due = [each for each in self._due if each[2] is not failed]
        if len(self._due) < waiting:
            heapq.heapify(self._due)
            return True
        if self.ready.remove(failed):
            return True
        for waits in (self._leaving, self._spent, failed.partition.held_calls):
            if failed in waits:
                waits.remove(failed)
                return True
        return False

    def leave_first(self, failed: FailedRecord) -> None:
        """Let a record that a user dead-letters leave before all others."""
        self._leaving.appendleft(failed)

    def send_home(self, stray: FailedRecord) -> None:
        """Let a copy move to the partition where it belongs."""
        stray.partition.on_first_failure(stray)
        self._leaving.appendleft(stray)

    def not_published(self, failed: FailedRecord, error: PublishFailedError, now: float) -> None:
        """Retry a copy later, smaller if it was too large."""
        self._counters.publish_failures += 1
        failed.publish_failures += 1
        if error.too_large and not failed.is_stray:
            if failed.detail is Detail.FULL:
                failed.detail = Detail.WITHOUT_ERROR_TEXTS
                self._leaving.append(failed)
                return
            if failed.detail is Detail.WITHOUT_ERROR_TEXTS:
                if self._rules.on_oversize == "reference" and failed.end == "dead_letter":
                    # A level must call the handler with the value, so the reference ends the
                    # ladder.
                    failed.detail, failed.level, failed.end = Detail.REFERENCE, None, "dead_letter"
                    self._leaving.append(failed)
                    return
                if self._rules.on_oversize == "stop":
                    self.stop = (
                        f"the copy of {describe(failed)} is too large and on_oversize is stop:"
                        f" {error}"
                    )
                    return
        failed.due = now + PUBLISH_BACKOFF.backoff(failed.publish_failures, self._jitter)
        self._wait(failed)

    def answered(self) -> None:
        """Record that a copy was acked or refused."""
        self.unacked -= 1

    def release_due(self, now: float) -> None:
        """Release records whose wait is over."""
        self.ready.refill()
        while self._due and self._due[0][0] <= now:
            failed = heapq.heappop(self._due)[2]
            if failed.reason is None:
                self.ready.add((failed,))
            else:
                self._leaving.append(failed)

    @property
    def has_ready(self) -> bool:
        """The next call of some record may be due."""
        return bool(self.ready)

    def next_calls(self, at_most: int) -> list[FailedRecord]:
        """Return records that are called now, see ``ReadyCalls.take``."""
        records = self.ready.take(at_most)
        self._counters.retried += len(records)
        return records

    def charge(self, partitions: Iterable[Partition]) -> None:
        """Charge the calls that failed while the breaker was finding out that there is poison.

        Records whose attempts are spent by that wait for no other call. Walks all failed records.
        """
        spent = [
            failed
            for partition in partitions
            for failed in partition.failed.values()
            if self._is_spent_now(failed)
        ]
        if not spent:
            return
        taken = self.ready.remove_all(spent)
        waiting = set(spent)
        taken += [each for _, _, each in self._due if each in waiting]
        self._due = [each for each in self._due if each[2] not in waiting]
        heapq.heapify(self._due)
        for failed in sorted(taken, key=lambda each: each.last_failure):
            step = self._rules.next_step(
                failed.failure.error,
                failed.charged,
                self._jitter,
                failed.partition.retry_level.level,
            )
            assert isinstance(step, Spent)  # else it is not spent now
            self._leave(failed, step)

    def _is_spent_now(self, failed: FailedRecord) -> bool:
        """Charge a record's calls in doubt; return whether its attempts are spent by that."""
        failed.spared -= failed.in_doubt
        was_in_doubt, failed.in_doubt = failed.in_doubt > 0, 0
        if not was_in_doubt or failed.reason is not None or failed.together is not None:
            return False
        allowed = self._rules.allowed(failed.partition.retry_level.level)
        overtakes = self._rules.on_failure == "overtake"
        return overtakes and failed.charged >= allowed and not (failed.asks_later or failed.deaths)

    def pardon(self, partitions: Iterable[Partition]) -> None:
        """Let records that were about to leave be called once more, if that can help."""
        for partition in partitions:
            for failed in partition.failed.values():
                failed.in_doubt = 0
        spent, self._spent = self._spent, deque()
        for failed in spent:
            if may_be_pardoned(failed):
                failed.reason = failed.level = None
                self.ready.add((failed,))
            else:
                self._spent.append(failed)

    def judge(self, judge: Judge, now: float) -> None:
        """Decide about the records whose attempts are spent, in the order of their failures."""
        final = []
        while self._spent:
            failed = self._spent[0]
            verdict = Departure.LEAVE if failed.released else judge(failed)
            if verdict is Departure.WAIT:
                break
            self._spent.popleft()
            if verdict is Departure.LEAVE:
                failed.is_decided = True
                self._leaving.append(failed)
            elif may_be_pardoned(failed):
                failed.alone = failed.alone or failed.in_batch
                failed.together = None
                failed.reason = failed.level = None
                failed.due = now + self._wait_s(failed, self._rules.allowed(None))
                self._wait(failed)
            else:
                final.append(failed)
        self._spent.extend(final)

    def release(self, partitions: Iterable[Partition]) -> None:
        """Let all failed records leave when they fail once more, and spent ones now."""
        for partition in partitions:
            for failed in partition.failed.values():
                failed.released = True
                self._released.append(failed)

    def hold(self, partitions: Iterable[Partition]) -> None:
        """Take back what ``release`` has allowed, except of records that are on their way."""
        self._released.clear()
        for partition in partitions:
            for failed in partition.failed.values():
                failed.released = False

    @property
    def has_released(self) -> bool:
        """A record that was released waits for the call after which it may leave."""
        while self._released and not _waits_for_a_call(self._released[0]):
            self._released.popleft()
        return bool(self._released)

    def _wait_s(self, failed: FailedRecord, failures: int) -> float:
        """Return how long a record waits for a call that is not charged."""
        if isinstance(failed.failure.error, RetryLater):
            return min(failed.failure.error.after_s, self._rules.backoff_max_s)
        return self._rules.backoff(failures, self._jitter)

    def spare(self, records: Iterable[FailedRecord]) -> None:
        """Undo the charges of records whose last call asked to be called later."""
        for failed in records:
            if failed.asks_later:
                failed.spared = max(failed.spared, failed.asked_later)

    def not_called(self, records: Sequence[FailedRecord]) -> None:
        """Take back records whose next call was dispatched and did not start."""
        self._counters.retried -= len(records)
        self.ready.put_back(records)

    def to_publish(self, budget: MemoryBudget) -> Iterator[FailedRecord]:
        """Yield the records whose copies should be sent now, up to the unacked limit.

        A copy takes memory beside its record. One is always sent, whatever its size. Records that
        are dropped now, which have no copies, are included.
        """
        while self._leaving and self.unacked < MAX_UNACKED:
            failed = self._leaving[0]
            if self.unacked and not budget.has_room_for(len(failed.message)):
                return
            self._leaving.popleft()
            if failed.partition.owned and failed.is_dropped:
                yield failed
            elif failed.partition.owned:
                self.unacked += 1
                failed.partition.hold(len(failed.message))
                yield failed

    def next_spent(self) -> FailedRecord | None:
        """Return the record about which the breaker decides next; None if there is none."""
        return self._spent[0] if self._spent else None

    def next_due(self) -> float | None:
        """Return when the next waiting record is due; None if none waits."""
        return self._due[0][0] if self._due else None

    def _wait(self, failed: FailedRecord) -> None:
        heapq.heappush(self._due, (failed.due, next(self._ties), failed))


def may_be_pardoned(failed: FailedRecord) -> bool:
    """Return whether a record that is about to leave may be called once more instead."""
    return failed.reason in PARDONED and not failed.publish_failures


def _waits_for_a_call(failed: FailedRecord) -> bool:
    """Return whether a record that a user has released has not been called since."""
    partition = failed.partition
    still = failed.released and partition.failed.get(failed.seq) is failed
    return still and failed.reason is None and partition.is_active and not partition.is_suspended


def _why_to_stop(failed: FailedRecord) -> str:
    fault = failed.failure.fault
    if isinstance(failed.failure.error, UnreadableHeaders):
        return f"{describe(failed)} {fault.message}, and retry.when_spent is stop"
    if isinstance(failed.failure.error, NotCalled):
        return f"{describe(failed)} {fault.message}, and otherwise is stop"
    return (
        f"{describe(failed)} failed at attempt {failed.calls}"
        f" ({fault.error_class}) and retry.when_spent is stop"
    )


def describe(failed: FailedRecord) -> str:
    """Return the record's name as messages show it."""
    return f"{failed.partition.name}@{failed.message.offset()}"
