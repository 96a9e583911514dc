"""Failed records: which wait for the next call, and which for an acknowledged copy.

A waiting record occupies no slot. A record that leaves is finished only when the broker has
acknowledged its copy. Until then it is open, its lane is busy and its offset is held.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, takewhile

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.backpressure import MemoryBudget
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
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.scheduling.rate_limit import RateLimits
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


Alike = tuple[Partition, int, object]
"""What records that may share a slice have in common: partition, attempts, and the key if each key
has a rate."""

MAX_UNACKED = 1000
"""The most copies in flight to the broker: enough for its batches, little to hold twice."""

MayLeave = Callable[[FailedRecord], bool]
"""Returns whether a record may leave now; if not, those behind it may not either."""


class RetryQueue:
    """The failed records of one worker. Owner: poll thread."""

    def __init__(self, rules: RetryRules, jitter: Jitter, counters: Counters):
        self._rules = rules
        self._jitter = jitter
        self._counters = counters
        self._due: list[tuple[float, int, FailedRecord]] = []
        self._ties = count()
        self._ready: dict[Alike, deque[FailedRecord]] = {}
        """Records whose next call is due; the first one ready is in front."""
        self._leaving: deque[FailedRecord] = deque()
        self.rates: RateLimits | None = None
        """Set if a rate limits calls."""
        self._dry: dict[Alike, deque[FailedRecord]] = {}
        """Ready records that were found to wait for their rate since the last check."""
        self.spares = False
        """A record that asks to be called later stays and is not charged: most new records ask."""
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
    ) -> FailedRecord:
        """Record one failed call, or ``calls`` of them, and decide where its record goes next.

        ``together`` is what it shares with the other failed records of its batch.
        """
        failed = partition.failed.get(seq)
        if failed is None:
            failed = FailedRecord(partition, message, seq, lane, 0, failure, now, now)
            partition.on_first_failure(failed)
        if not isinstance(failure.error, NotCalled):
            failed.attempts += calls
        failed.failure = failure
        failed.last_failure = now
        level = partition.retry_level.level
        failed.deaths += isinstance(failure.error, ProcessDiedError)
        jitter = self._jitter if together is None else together.jitter
        if isinstance(failure.error, RetryLater):
            failed.asked_later += 1
            failed.spared += self.spares
        failed.uncalled += isinstance(failure.error, CallAgain)
        charged = failed.attempts - failed.spared - failed.uncalled
        if isinstance(failure.error, CallAgain):
            step: Retry | Spent = Retry(failure.error.after_s)
        else:
            step = self._rules.next_step(failure.error, charged, jitter, level, failed.deaths)
        if self.spares and isinstance(failure.error, RetryLater) and isinstance(step, Spent):
            step = Retry(min(failure.error.after_s, self._rules.backoff_max_s))
        if together is not None:
            failed.together, failed.due = together, now
            step = together.step_of(lane, step)
        if isinstance(step, Retry):
            failed.due = now + step.delay_s
            self._wait(failed)
            return failed
        failed.reason, failed.end, failed.level = step.reason, step.end, step.level
        held = failed.is_dropped and failed.reason in PARDONED
        if failed.level is not None or failed.end == "dead_letter" or held:
            self._leaving.append(failed)
        elif failed.end == "stop":
            self.stop = _why_to_stop(failed)
        return failed

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
        failed.uncalled = first.uncalled
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
        for lines in (self._ready, self._dry):
            for alike, line in lines.items():
                if failed in line:
                    line.remove(failed)
                    if not line:
                        del lines[alike]
                    return True
        for waits in (self._leaving, failed.partition.held_calls):
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
        if self._dry:
            # The first one ready is in front.
            self._ready, self._dry = self._dry, self._ready
            for alike, line in self._dry.items():
                self._ready.setdefault(alike, deque()).extend(line)
            self._dry = {}
        while self._due and self._due[0][0] <= now:
            failed = heapq.heappop(self._due)[2]
            if failed.reason is None:
                self.call_again((failed,))
            else:
                self._leaving.append(failed)

    @property
    def has_ready(self) -> bool:
        """The next call of some record may be due."""
        return bool(self._ready)

    def next_calls(self, at_most: int) -> list[FailedRecord]:
        """Return records of one partition and equal attempts whose next call is due.

        Empty if there are none. Records of a batch that are called again together are not
        separated, so there may be more than ``at_most``, but never more than a batch holds.
        """
        while self._ready:
            alike = partition, _, _ = next(iter(self._ready))
            line = self._ready.pop(alike)
            if not partition.may_start:
                partition.held_calls.extend(line)
            elif partition.is_active:
                room = self._room(line, at_most)
                if not room:
                    self._dry[alike] = line
                    continue
                records = [line.popleft() for _ in range(min(room, len(line)))]
                if line and records[-1].together is not None:
                    _keep_together(records, line)
                if line:
                    self._ready[alike] = line
                self._counters.retried += len(records)
                return records
        return []

    def call_again(self, records: Iterable[FailedRecord]) -> None:
        """Take records back whose next call is due."""
        for failed in records:
            self._line_of(failed).append(failed)

    def _room(self, line: Sequence[FailedRecord], at_most: int) -> int:
        """Return how many records of a line may be called now."""
        rates = self.rates
        if rates is None:
            return at_most
        partition, message = line[0].partition, line[0].message
        if not rates.may_start(partition, message):
            return 0
        bucket = rates.bucket(partition, message)
        # They came in one list, so the burst suffices for them: they wait until it is available.
        if bucket.room < min(_batch_in_front(line), rates.rules.burst):
            rates.refused(bucket)
            return 0
        return min(at_most, bucket.room)

    def _line_of(self, failed: FailedRecord) -> deque[FailedRecord]:
        key: object = None
        if failed.deaths:
            key = failed  # its process may die again: it is called alone
        elif self.rates is not None and self.rates.rules.per == "key":
            key = failed.message.key()
        if failed.uncalled:
            key = key, failed.uncalled
        return self._ready.setdefault((failed.partition, failed.attempts, key), deque())

    def pardon(self, *, once: bool = False) -> None:
        """Let records that were about to leave be called once more, if that can help.

        With ``once``, skip records that were pardoned this way before.
        """
        leaving, self._leaving = self._leaving, deque()
        for failed in leaving:
            if may_be_pardoned(failed) and not (once and failed.pardoned):
                failed.pardoned = failed.pardoned or once
                failed.reason = failed.level = None
                self.call_again((failed,))
            else:
                self._leaving.append(failed)

    def spare(self, records: Iterable[FailedRecord]) -> None:
        """Undo the charges of records whose last call asked to be called later."""
        for failed in records:
            if failed.asks_later:
                failed.spared = failed.asked_later

    def not_called(self, records: Sequence[FailedRecord]) -> None:
        """Take back records whose next call was dispatched and did not start."""
        self._counters.retried -= len(records)
        for failed in reversed(records):
            self._line_of(failed).appendleft(failed)

    def to_publish(self, budget: MemoryBudget, may_leave: MayLeave) -> Iterator[FailedRecord]:
        """Yield the records whose copies should be sent now, up to the unacked limit.

        A copy takes memory beside its record. One is always sent, whatever its size. Records that
        are dropped now, which have no copies, are included.
        """
        while self._leaving and self.unacked < MAX_UNACKED:
            failed = self._leaving[0]
            if self.unacked and not budget.has_room_for(len(failed.message)):
                return
            # A record that a user dead-letters is not part of an outage.
            if failed.reason is not Reason.MANUAL and not may_leave(failed):
                return
            self._leaving.popleft()
            if failed.partition.owned and failed.is_dropped:
                yield failed
            elif failed.partition.owned:
                self.unacked += 1
                failed.partition.hold(len(failed.message))
                yield failed

    def next_to_leave(self) -> FailedRecord | None:
        """Return the record that leaves next; None if none is about to."""
        return self._leaving[0] if self._leaving else None

    def next_due(self) -> float | None:
        """Return when the next waiting record is due; None if none waits."""
        return self._due[0][0] if self._due else None

    def _wait(self, failed: FailedRecord) -> None:
        heapq.heappush(self._due, (failed.due, next(self._ties), failed))


def may_be_pardoned(failed: FailedRecord) -> bool:
    """Return whether a record that is about to leave may be called once more instead."""
    return failed.reason in PARDONED and not failed.publish_failures


def _keep_together(records: list[FailedRecord], line: deque[FailedRecord]) -> None:
    """Move records between this call and the waiting line, so that no batch is separated."""
    last = records[-1]
    if not _same_batch(last, line[0]):
        return
    first = len(records) - 1
    while first and _same_batch(last, records[first - 1]):
        first -= 1
    if first:
        line.extendleft(reversed(records[first:]))
        del records[first:]
    else:
        while line and _same_batch(last, line[0]):
            records.append(line.popleft())


def _batch_in_front(line: Sequence[FailedRecord]) -> int:
    """Return how many records are called together with the first one."""
    if line[0].together is None:
        return 1
    return sum(1 for _ in takewhile(partial(_same_batch, line[0]), line))


def _same_batch(one: FailedRecord, other: FailedRecord) -> bool:
    return one.together is other.together and one.due == other.due


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
