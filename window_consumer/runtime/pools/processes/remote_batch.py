"""A batch on its way to a child process and back, as one unit."""

from __future__ import annotations

from window_consumer.engine.scheduling.slice_results import RecordsReturned
from window_consumer.model.fault import Failure
from window_consumer.model.record import Message
from window_consumer.runtime.pools.processes.child_batch import BatchReport
from window_consumer.runtime.pools.processes.child_failures import restored
from window_consumer.runtime.pools.processes.child_slice import RecordReport
from window_consumer.runtime.pools.processes.remote_slice import RemoteSlice


class RemoteBatch(RemoteSlice):
    """A batch that a child process claims as a whole, or that waits for one.

    It has one token for all of its records.
    """

    def left(self) -> int:
        """Return the number of unclaimed records: all of them, or none."""
        shared_slot = self.shared_slot
        is_free = self.waits if shared_slot is None else shared_slot.tokens.value
        return len(self.messages) if is_free else 0

    def take_back(self) -> list[Message]:
        """Take the whole batch back, unless a child has begun it."""
        if self.shared_slot is not None:
            return self._cut(len(self.messages)) if self.shared_slot.take_all() else []
        return super().take_back()

    def record(self, report: RecordReport | BatchReport) -> None:
        """Record the outcomes of records whose handler did not simply return."""
        assert isinstance(report, BatchReport)
        messages, deviations = self.messages, self.slice_.deviate()
        failures = [restored(each) for each in report.failures]
        deviations.failed += [
            (messages[place], failures[number]) for place, number in report.failed
        ]
        deviations.held += [messages[place] for place in report.held]
        for place, outcome in report.skipped:
            deviations.skipped.append((messages[place], outcome))
        deviations.returned += [
            RecordsReturned([messages[place] for place in places], results, handler)
            for places, results, handler in report.returned
        ]
        self.reported += 1

    def on_child_exit(self, failure: Failure) -> bool:
        """Settle the batch after its child's death; return False if it had not begun.

        All of it fails, unless the child had reported its outcomes.
        """
        assert self.shared_slot is not None
        has_begun = not self.shared_slot.take_all() and bool(self.messages)
        is_known = self.shared_slot.over.value or self.reported
        self.leave()
        if not has_begun:
            self.slice_.started = 0.0
            self.waits = True
            return False
        if not is_known:
            deviations = self.slice_.deviate()
            for message in self.messages:
                self._end(message, self.ending or failure, deviations)
        return True

    @property
    def is_halved(self) -> bool:
        """Whether it comes back in halves if its child dies now."""
        return self.begun > 1

    @property
    def current(self) -> Message | None:
        """The first record of the batch while its child handles it, else None."""
        if self.shared_slot is None or not self.begun or self.shared_slot.over.value:
            return None
        return self.messages[0]

    @property
    def begun(self) -> int:
        """The number of records that its child has begun: all of them, or none."""
        return (
            0 if self.shared_slot is None or self.shared_slot.tokens.value else len(self.messages)
        )
