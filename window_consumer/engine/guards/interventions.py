"""Interventions: a user skips or dead-letters one record, or requests a pause or a concurrency.

Only a failed record can be taken, and only while it waits: for its next call, for a copy that the
broker refuses, or for the breaker. A record whose call is running cannot be taken, because not
every pool can end that call, and its lane would proceed beside it. A record that has not been
called yet gives no reason to be taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from attrs import frozen

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.policy import Spent
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.retry.record_state import AT_REST
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.model.headers import Reason
from window_consumer.model.record import TopicPartition


class Intervention(StrEnum):
    """What a user requests for a record."""

    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


class InterventionResult(StrEnum):
    """The result of an intervention; ``NOT_ASSIGNED`` and those after it have changed nothing."""

    SKIPPED = "skipped"
    LEAVING = "leaving"
    """Its copy is on its way to the dead letters; the record is finished when that is acked."""
    DEAD_LETTERED = "dead-lettered"
    """That copy has been acked; the Engine returns ``LEAVING`` first."""
    NOT_ASSIGNED = "not-assigned"
    NOT_IN_WINDOW = "not-in-window"
    FINISHED = "finished"
    NOT_FAILED = "not-failed"
    """No call of it has failed: it waits to start, or for the acks of its results."""
    RUNNING = "running"
    IN_FLIGHT = "in-flight"
    """A copy or results of it wait for the broker's ack."""
    NO_DEAD_LETTERS = "no-dead-letters"


@frozen
class PauseRequest:
    """A request for a pause or its end: by whom, and why."""

    user: str = ""
    """The name of the user's token; empty if none is needed."""
    reason: str = ""
    since: float = 0.0
    """When the pause began, on the Engine's clock."""

    def __str__(self) -> str:
        return ": ".join(filter(None, [self.user and f"by {self.user}", self.reason]))


UNNAMED: Final = PauseRequest()
"""A request without a name and a reason."""


@frozen
class ConcurrencyRequest:
    """A user's limit on busy slots, and the reason."""

    limit: int | None
    """None for the configured number."""
    user: str = ""
    """The name of the user's token; empty if none is needed."""
    reason: str = ""
    since: float = 0.0
    """When it began, on the Engine's clock."""

    def __str__(self) -> str:
        user = f" by {self.user}" if self.user else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"set manually{user}{reason}"


class ConcurrencyAnswer(StrEnum):
    """The result of a ConcurrencyRequest; only ``OBEYED`` changes anything.

    Of several replicas' answers, the one listed first counts.
    """

    OBEYED = "obeyed"
    TOO_MANY = "too many"
    """It exceeds the slots that the worker was started with."""
    LEASES = "leases"
    """Clients decide how many leases they ask for."""
    NO_SUCH_WORKER = "no such worker"


class Interventions:
    """Takes single records out of the way. Owner: poll thread."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        dispatcher: Dispatcher,
        retry_queue: RetryQueue,
        completion: Completion,
        outcomes: RecordOutcomes,
    ):
        self._partitions = partitions
        self._dispatcher = dispatcher
        self._retry_queue = retry_queue
        self._completion = completion
        self._outcomes = outcomes

    def intervene(
        self, name: TopicPartition, offset: int, wanted: Intervention, now: float
    ) -> InterventionResult:
        """Skip or dead-letter a record, if it has failed and waits."""
        failed = self._find(name, offset, now)
        if isinstance(failed, InterventionResult):
            return failed
        if wanted is Intervention.DEAD_LETTER and not self._retry_queue.writes_dead_letters:
            return InterventionResult.NO_DEAD_LETTERS
        if failed.state not in AT_REST:
            return InterventionResult.IN_FLIGHT
        if wanted is Intervention.SKIP:
            failed.spent = Spent(Reason.MANUAL, "drop")
            self._outcomes.skip(failed, now)
            return InterventionResult.SKIPPED
        failed.spent = Spent(Reason.MANUAL)
        self._retry_queue.records.leave_first(failed)
        return InterventionResult.LEAVING

    def is_finished(self, name: TopicPartition, offset: int) -> bool:
        """Return whether a record that was in an owned partition's window has its outcome."""
        partition = self._partitions.get(name)
        return partition is not None and _seq_of(partition, offset) is InterventionResult.FINISHED

    def _find(
        self, name: TopicPartition, offset: int, now: float
    ) -> FailedRecord | InterventionResult:
        """Return a failed record without a running call, or the reason why there is none."""
        partition = self._partitions.get(name)
        if partition is None or not partition.is_assigned:
            return InterventionResult.NOT_ASSIGNED
        seq = _seq_of(partition, offset)
        if isinstance(seq, InterventionResult):
            return seq
        self._take_back(partition, seq, now)
        if any(seq in each.seqs for each in self._dispatcher.out if each.partition is partition):
            return InterventionResult.RUNNING
        return self._retry_queue.records.of(partition).get(seq) or InterventionResult.NOT_FAILED

    def _take_back(self, partition: Partition, seq: int, now: float) -> None:
        """Take back the slice of a record that waits for a slot, so that no call of it runs."""
        for slice_ in list(self._dispatcher.out):
            if slice_.partition is partition and seq in slice_.seqs[slice_.claimed() :]:
                self._completion.take_back(slice_, now)


def _seq_of(partition: Partition, offset: int) -> int | InterventionResult:
    """Return the sequence number of an open record of the window, or why there is none."""
    window = partition.window
    if offset < window.next_offset:
        return InterventionResult.FINISHED
    if not window.cells or offset >= window.offsets.next_offset:
        return InterventionResult.NOT_IN_WINDOW
    seq = window.offsets.seq_of(offset)
    # Holes in the log have no record: their sequence number is unused or that of the record behind
    # the hole.
    is_there = window.place_of(seq) is not None and window.offsets.offset_of(seq) == offset
    if not is_there:
        return InterventionResult.NOT_IN_WINDOW
    return seq if window.is_open(seq) else InterventionResult.FINISHED
