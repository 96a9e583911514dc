"""The copies of records that leave: when each is written, and what follows if it was refused."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.retry.failed_record import Detail, FailedRecord
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.policy import PUBLISH_BACKOFF, Jitter, RetryRules
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.headers import Reason

MAX_UNACKED = 1000
"""The most copies in flight to the broker: enough for its batches, little to hold twice."""


class CopyQueue:
    """Decides which copies of one worker are written next. Owner: poll thread."""

    def __init__(
        self,
        rules: RetryRules,
        records: FailedRecords,
        budget: MemoryBudget,
        jitter: Jitter,
        counters: Counters,
    ):
        self._rules = rules
        self._records = records
        self._budget = budget
        self._jitter = jitter
        self._counters = counters
        self.keeps = False
        """Only records that a user sends away leave: a rule has paused the worker."""
        self.stop: str | None = None
        """Why the worker has to stop, once a copy that is too large requires it."""

    def to_publish(self) -> Iterator[FailedRecord]:
        """Yield the records whose copies should be sent now, up to the unacked limit.

        A copy takes memory in addition to its record. One is always sent, whatever its size.
        Records that are dropped now have no copies but are included: the caller finishes them.
        """
        records = self._records
        unacked = len(records.unacked)
        while unacked < MAX_UNACKED and (failed := records.first_leaving) is not None:
            if self.keeps and failed.reason is not Reason.MANUAL:
                return
            size = len(failed.message)
            if unacked and not self._budget.has_room_for(size):
                return
            if not failed.is_dropped:
                records.move(failed, RecordState.UNACKED)
                failed.partition.hold(size)
                unacked += 1
            yield failed

    def not_published(self, failed: FailedRecord, error: PublishFailedError, now: float) -> None:
        """Retry a copy later, smaller if it was too large."""
        self._counters.publish_failures += 1
        failed.publish_failures += 1
        too_large = error.too_large and failed.forward is None
        if too_large and self._shrink(failed):
            self._records.move(failed, RecordState.LEAVING)
        elif too_large and self._stops_for(failed, error):
            self._records.move(failed, RecordState.STOPPING)
        else:
            backoff_s = PUBLISH_BACKOFF.backoff(failed.publish_failures, self._jitter)
            self._records.wait(failed, now + backoff_s)

    def _shrink(self, failed: FailedRecord) -> bool:
        """Make a copy smaller; return False if that is not possible."""
        if failed.detail is Detail.FULL:
            failed.detail = Detail.WITHOUT_ERROR_TEXTS
            return True
        has_texts = failed.detail is Detail.WITHOUT_ERROR_TEXTS
        refers = self._rules.on_oversize == "reference" and failed.end == "dead_letter"
        if has_texts and refers and failed.spent is not None:
            # A level must call the handler with the value, so the reference ends the ladder.
            failed.detail, failed.spent = Detail.REFERENCE, evolve(failed.spent, level=None)
            return True
        return False

    def _stops_for(self, failed: FailedRecord, error: PublishFailedError) -> bool:
        """Return whether the worker must stop because of a copy that is too large."""
        if self._rules.on_oversize != "stop" or failed.detail is not Detail.WITHOUT_ERROR_TEXTS:
            return False
        self.stop = f"the copy of {failed} is too large and on_oversize is stop: {error}"
        return True
