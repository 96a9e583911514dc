"""Which partitions are ours: partitions are assigned, revoked, and released or lost."""

from __future__ import annotations

from collections.abc import Iterable

from window_consumer.engine.decisions import Assigned, Outlived
from window_consumer.engine.guards.crash_history import CrashHistory
from window_consumer.engine.observer import Observer
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.parts import EngineParts
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition


class OwnedPartitions:
    """Takes and releases partitions, and notifies each part. Owner: poll thread."""

    def __init__(self, parts: EngineParts):
        self._parts = parts
        self.observer: Observer | None = None
        self.stopping = False
        """Nothing more is taken in or started."""

    def take(self, assignments: Iterable[Assigned], now: float) -> None:
        """Open a window, in a new epoch, for each partition."""
        parts = self._parts
        for assigned in assignments:
            self.lose([assigned.name], now)
            partition = parts.epochs.begin(assigned)
            partition.recalled = assigned.kept
            if self.stopping:
                partition.revoke()
            parts.pauses.assigned(partition)
            parts.partitions[assigned.name] = partition
            parts.lane_ownership.assigned(partition, assigned.partitions)
            if self.observer is not None:
                self.observer.assigned(partition, now)
            partition.recalled = None
            may_suspect = parts.guarantee.repeats and not self.stopping
            if assigned.unclean is not None and may_suspect:
                capacity = partition.window.capacity
                crash_history = CrashHistory(
                    assigned.unclean, assigned.next_offset, capacity, parts.rules.slots, now
                )
                parts.suspects.begin(partition, crash_history)
            parts.resting.assigned(partition)
        parts.lane_ownership.sort_out(now)
        parts.housekeeping.is_due_at(now)

    def revoke(self, names: Iterable[TopicPartition], now: float) -> None:
        """Start nothing more of these partitions; take back their unstarted records."""
        parts = self._parts
        parts.scheduling.advance_clocks(now)
        parts.start_gate.in_a_hurry = True
        for name in names:
            partition = parts.partitions.get(name)
            if partition is not None and partition.is_assigned:
                partition.revoke()
                parts.suspects.remove(partition)
                slices = parts.dispatcher.slices_of(partition)
                for slice_ in parts.guarantee.unstarted(partition, slices):
                    parts.completion.take_back(slice_, now)
                parts.dispatcher.release_gathered(partition)
                parts.guarantee.revoking(partition)
        parts.lane_ownership.sort_out(now)

    def release(
        self, names: Iterable[TopicPartition], now: float
    ) -> tuple[list[Commit], list[Outlived]]:
        """Release partitions with a last commit each, see ``Engine.on_revoked``."""
        parts = self._parts
        owned = [parts.partitions[name] for name in names if name in parts.partitions]
        for partition in owned:
            crash_history = partition.commit.crash_history
            if crash_history is not None and partition.has_run_freely and not partition.slices:
                crash_history.absolve()
        commits = parts.guarantee.last(owned, now)
        return commits, self.lose([each.name for each in owned], now)

    def lose(self, names: Iterable[TopicPartition], now: float) -> list[Outlived]:
        """Release partitions without a commit, see ``Engine.on_lost``."""
        parts = self._parts
        parts.scheduling.advance_clocks(now)
        outlived: list[Outlived] = []
        released = []
        for name in names:
            partition = parts.partitions.get(name)
            if partition is None:
                continue
            parts.losses.count(partition, now)
            parts.guarantee.released(partition)
            del parts.partitions[name]
            outlived += parts.work.outlive(partition, now)
            parts.dispatcher.remove(partition)
            parts.suspects.remove(partition)
            partition.set_hold(HoldReason.CRASH_SUSPECTS, held=False)
            parts.resting.remove(partition)
            parts.housekeeping.remove(name)
            parts.pauses.remove(name)
            siblings = list(partition.siblings)
            if self.observer is not None:
                self.observer.given_up(partition, now)
            parts.failed_records.remove(partition)
            partition.give_up()
            released.append(partition)
            if not partition.retry_level.is_copy:
                parts.turn_decisions.ask_again(siblings)
            for sibling in siblings:
                parts.dispatcher.wake(sibling)  # their lanes may be free now
        if released:
            parts.lane_ownership.sort_out(now)
            outlived += [
                each for partition in released for each in parts.lane_ownership.outlived(partition)
            ]
        parts.start_gate.in_a_hurry = self.stopping
        parts.counters.outlived += len(outlived)
        return outlived

    def stop(self, now: float) -> None:
        """Take nothing in and start nothing more; running calls may finish."""
        self.stopping = True
        self.revoke(list(self._parts.partitions), now)
