"""Which partitions may start records: those whose commit says that they are in use.

Nothing starts before such a commit is acked. Otherwise a record that ends the process at once would
do so for ever, and every end would look clean (see ``crash_history``). A source partition wakes
when it is assigned.

A process that ends while records wait for their due times, or for other records, has not ended on
them, so the end must not count as unclean. So a retry topic's partition rests in the meantime: its
commit is a clean one. It wakes before its next record is due, so that the record does not wait for
a commit.
"""

from __future__ import annotations

from collections.abc import Mapping

from window_consumer.engine.commits.delivery_guarantee import DeliveryGuarantee
from window_consumer.engine.guards.crash_suspects import CrashSuspects
from window_consumer.engine.guards.pauses import hold_back
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.model.record import TopicPartition

REST_AFTER_S = 5.0
"""How long nothing may have started before a partition rests: two commits for each rest."""

WAKE_AHEAD_S = 1.0
"""How long before a record is due its partition wakes. A commit takes milliseconds."""

LOOK_S = 0.25
"""How often partitions that nothing has woken are checked."""


class RestingPartitions:
    """Lets the partitions of one worker rest, and wakes them. Owner: poll thread."""

    def __init__(  # noqa: PLR0913 - what holds a partition back; made in one place
        self,
        partitions: Mapping[TopicPartition, Partition],
        dispatcher: Dispatcher,
        completion: Completion,
        failed_records: FailedRecords,
        outcomes: RecordOutcomes,
        suspects: CrashSuspects,
        guarantee: DeliveryGuarantee,
    ):
        self._guarantee = guarantee
        self._partitions = partitions
        self._dispatcher = dispatcher
        self._completion = completion
        self._failed_records = failed_records
        self._outcomes = outcomes
        self._suspects = suspects
        self._waking: dict[Partition, None] = {}
        """Those without an acked commit that says they are in use."""
        self._look_at = float("-inf")

    @property
    def awaits_commit(self) -> bool:
        """A commit must be acked before records start."""
        return bool(self._waking)

    def assigned(self, partition: Partition) -> None:
        """Let no record of a new partition start yet; a retry topic's partition rests."""
        case = self._suspects.cases.get(partition)
        if self._concerns(partition):
            if case is None or not case.crash_history.careful:
                self._let_rest(partition)
        elif case is None and self._guarantee.counts_ends and not partition.commit.shows_use:
            partition.set_hold(HoldReason.RESTING, held=True)
            self._wake(partition)

    def remove(self, partition: Partition) -> None:
        """Remove a released partition."""
        self._waking.pop(partition, None)
        self._dispatcher.woken.discard(partition)
        partition.set_hold(HoldReason.RESTING, held=False)

    def advance(self, now: float) -> None:
        """Wake partitions, and let others rest; called in each tick."""
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            for partition in self._partitions.values():
                if self._concerns(partition):
                    self._check(partition, now)
        if woken := self._dispatcher.woken:
            for partition in woken:
                if self._starts_soon(partition, now):
                    self._wake(partition)
            woken.clear()
        for partition in [each for each in self._waking if each.commit.shows_use]:
            del self._waking[partition]
            partition.set_hold(HoldReason.RESTING, held=False)
            self._failed_records.call_held(partition)
            self._outcomes.advance(partition, now)

    def _concerns(self, partition: Partition) -> bool:
        return partition.retry_level.is_copy and self._guarantee.counts_ends

    def _check(self, partition: Partition, now: float) -> None:
        if partition.rests:
            if self._starts_soon(partition, now):
                self._wake(partition)
        elif self._may_rest(partition, now):
            hold_back(partition, self._dispatcher, self._completion, now)
            self._let_rest(partition)

    def _let_rest(self, partition: Partition) -> None:
        partition.set_hold(HoldReason.RESTING, held=True)
        partition.commit.rest()

    def _wake(self, partition: Partition) -> None:
        if partition not in self._waking:
            self._waking[partition] = None
            partition.commit.wake()

    def _may_rest(self, partition: Partition, now: float) -> bool:
        """Return whether nothing runs now or soon."""
        return (
            now - partition.dispatched_at >= REST_AFTER_S
            and partition.is_assigned
            and not partition.slices
            and partition not in self._suspects.cases
            and not self._dispatcher.has_chosen(partition)
            and not any(each.partition is partition for each in self._dispatcher.abandoned)
            and not self._starts_soon(partition, now)
        )

    def _starts_soon(self, partition: Partition, now: float) -> bool:
        if partition.ordering.startable or partition.next_due <= now + WAKE_AHEAD_S:
            return True
        return any(
            each.state in _MAY_START
            or (each.state is RecordState.WAITING and each.due <= now + WAKE_AHEAD_S)
            for each in self._failed_records.of(partition).values()
        )


_MAY_START = frozenset(
    {RecordState.READY, RecordState.HELD_BY_RATE, RecordState.HELD_BY_PARTITION, RecordState.CHOSEN}
)
"""The states of records that were called before and only wait for their turn."""
