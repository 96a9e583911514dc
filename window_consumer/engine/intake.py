"""Intake: takes what the Source delivers and reports into the windows."""

from __future__ import annotations

from collections.abc import Mapping

from window_consumer.engine.counters import Counters
from window_consumer.engine.decisions import OutOfOrderRecords
from window_consumer.engine.deliveries import check_names
from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.housekeeping import Housekeeping
from window_consumer.engine.observer import Observer
from window_consumer.engine.ownership.epochs import Epochs
from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.model.offset_ranges import without
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Batch
from window_consumer.model.record import Message, TopicPartition


class Intake:
    """Takes records in, once and in offset order. Owner: poll thread."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        budget: MemoryBudget,
        dispatcher: Dispatcher,
        housekeeping: Housekeeping,
        counters: Counters,
        epochs: Epochs,
    ):
        self._partitions = partitions
        self._budget = budget
        self._dispatcher = dispatcher
        self._housekeeping = housekeeping
        self._counters = counters
        self._epochs = epochs
        self._passed_over: list[OutOfOrderRecords] = []
        self.observer: Observer | None = None

    def take(self, batch: Batch, now: float, wall_ms: float) -> bool:
        """Take delivered records into their window, see ``Engine.on_records``."""
        check_names(batch)
        partition = self._partitions.get(batch.name)
        messages = batch.messages
        count = len(messages)
        self._counters.delivered += count
        if partition is None or not partition.is_assigned:
            self._counters.stale += count
            if partition is not None:
                partition.refuse(messages)
            return True
        if partition.is_beyond_log(messages):
            self._counters.stale += count
            return False
        unseen = self._unseen(partition, messages)
        if not unseen:
            return True
        if batch.unreadable:
            partition.record_unreadable(batch.unreadable, unseen)
            self._epochs.ask_turns(partition)
        partition.holes.record(unseen, partition.next_delivery)
        size = batch.size if unseen is messages else sum(map(len, unseen))
        self._budget.record_sizes(len(unseen), size)
        partition.hold(size)
        if self._budget.used > self._budget.limit:
            self._housekeeping.is_due_at(now)  # pause before the next batch comes
        if self.observer is not None:
            self.observer.taken(partition, unseen, now)
        if partition.retry_level.level is None:
            earlier = partition.take_in(unseen, size, now)
        else:
            earlier = partition.take_in_later(unseen, now, wall_ms)
            self._housekeeping.wait_for(partition)
        if earlier:
            self._counters.count(Outcome.EARLIER, earlier)
        self._dispatcher.wake(partition)
        return True

    def _unseen(self, partition: Partition, messages: list[Message]) -> list[Message]:
        unseen = partition.unseen(messages)
        if seen := len(messages) - len(unseen):
            self._counters.stale += seen
            late = partition.holes.within(messages[:seen])
            if late is not None:
                self._passed_over.append(OutOfOrderRecords(partition.name, late))
        return unseen

    def leaves_hole(self, batch: Batch) -> bool:
        """Return whether records begin beyond the expected offset."""
        partition = self._partitions.get(batch.name)
        return partition is not None and batch.messages[0].offset() > partition.next_delivery

    def take_passed_over(self) -> list[OutOfOrderRecords]:
        """Return the records that came out of order since the last call."""
        passed_over, self._passed_over = self._passed_over, []
        return passed_over

    def advance_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        """Record the client's positions: transaction markers may follow the last record."""
        for name, position in positions.items():
            partition = self._partitions.get(name)
            if partition is not None and position > partition.position:
                partition.position = position
                if partition.idle and position > partition.window.next_offset:
                    partition.commit.changed = True

    def skip(self, name: TopicPartition, offsets: range, now: float) -> None:
        """Record that the log no longer has these offsets and that reading continues after them."""
        partition = self._partitions.get(name)
        if partition is None:
            return
        finished = ((each.start, each.stop) for each in partition.finished_ranges())
        deleted = [range(*each) for each in without(((offsets.start, offsets.stop),), finished)]
        self._counters.gone += sum(map(len, deleted))
        if deleted and self.observer is not None:
            self.observer.gone(partition, deleted, now)

    def record_log_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Record the logs' end offsets. They are only displayed."""
        for name, end in ends.items():
            partition = self._partitions.get(name)
            if partition is not None:
                partition.log_end = end
