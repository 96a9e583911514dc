"""Periodic work of the engine: buffers, pauses, commits, and blocked heads of line."""

from __future__ import annotations

from collections.abc import Mapping

from window_consumer.engine.commits.delivery_guarantee import DeliveryGuarantee
from window_consumer.engine.decisions import Decisions, HeadOfLineBlocked
from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.model.record import TopicPartition


class HeadOfLineWatch:
    """Reports a blocked head of line every ``hover_s`` seconds. Owner: poll thread."""

    def __init__(self, hover_s: float, dispatcher: Dispatcher, failed_records: FailedRecords):
        self._hover_s = hover_s
        self._dispatcher = dispatcher
        self._failed_records = failed_records
        self._reported: dict[TopicPartition, float] = {}

    def check(self, partition: Partition, now: float) -> HeadOfLineBlocked | None:
        """Return what must be reported about a partition now."""
        since = partition.window.hovering_since()
        reported = self._reported.get(partition.name, float("-inf"))
        if since is None or now - max(since, reported) < self._hover_s:
            return None
        seq = partition.window.cells[0].first_open_seq()
        failed = self._failed_records.of(partition).get(seq)
        if failed is None and partition.ordering.waits:
            return None  # not blocked: it waits for its rate
        offset = partition.window.offsets.offset_of(seq)
        if offset in self._failed_records.held_by_rule(partition):
            return None  # it waits for an earlier record of its lane in another topic
        self._reported[partition.name] = now
        attempt = failed.calls + 1 if failed else self._attempt(partition, seq)
        return HeadOfLineBlocked(partition.name, offset, attempt, now - since)

    def _attempt(self, partition: Partition, seq: int) -> int:
        """Return the number of the present or next call for a record that has not failed here."""
        for slice_ in self._dispatcher.slices_of(partition):
            for each, message in zip(slice_.seqs, slice_.messages, strict=True):
                if each == seq:
                    return slice_.call.number_of(message)
        before = partition.retry_level.attempts_before
        if before is None:
            return 1
        waiting = (message for each, message in partition.ordering.waiting() if each == seq)
        return 1 + next(map(before, waiting), 0)

    def remove(self, name: TopicPartition) -> None:
        """Remove a released partition."""
        self._reported.pop(name, None)


HOUSEKEEPING_S = 0.005
"""How often commits, pauses and heads of line are checked."""


class Housekeeping:
    """Keeps an Engine's partitions in order. Owner: poll thread."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        budget: MemoryBudget,
        outcomes: RecordOutcomes,
        guarantee: DeliveryGuarantee,
        hover_watch: HeadOfLineWatch,
    ):
        self._partitions = partitions
        self._budget = budget
        self._outcomes = outcomes
        self._guarantee = guarantee
        self._hover_watch = hover_watch
        self._due_at = 0.0
        self.next_due = float("inf")
        """The time at which the next buffered copy is due."""

    def is_due_at(self, now: float) -> None:
        """Check everything in the next tick."""
        self._due_at = now

    def wait_for(self, partition: Partition) -> None:
        """Record that a partition has copies that are not due yet."""
        self.next_due = min(self.next_due, partition.next_due)

    def remove(self, name: TopicPartition) -> None:
        """Remove a released partition."""
        self._hover_watch.remove(name)

    def let_in(self, now: float) -> None:
        """Move copies into their windows when their wait is over."""
        if now < self.next_due:
            return
        self.next_due = float("inf")
        for partition in self._partitions.values():
            if partition.buffered and partition.is_assigned:
                self._refill(partition, now)

    def run(self, decisions: Decisions, now: float, *, may_commit: bool) -> None:
        """Refill, pause, resume, commit, and report blocked heads of line, when it is time."""
        if now < self._due_at:
            return
        self._due_at = now + HOUSEKEEPING_S
        for partition in self._partitions.values():
            if partition.is_assigned:
                self._check_partition(partition, decisions, now)
            hovering = self._hover_watch.check(partition, now)
            if hovering is not None and not partition.is_suspended:
                decisions.hovering.append(hovering)
        if may_commit:
            decisions.commit.extend(self._guarantee.commits(now))

    def _check_partition(self, partition: Partition, decisions: Decisions, now: float) -> None:
        everyone = self._partitions.values()
        name = partition.name
        if partition.buffered:
            self._refill(partition, now)
        if self._budget.should_pause(partition, everyone):
            partition.set_hold(HoldReason.BACKPRESSURE, held=True)
            decisions.pause.append(name)
        elif self._budget.should_resume(partition, everyone):
            partition.set_hold(HoldReason.BACKPRESSURE, held=False)
            decisions.resume.append((name, partition.next_delivery))

    def _refill(self, partition: Partition, now: float) -> None:
        self._outcomes.advance(partition, now)
        if partition.next_due > now:
            self.wait_for(partition)
