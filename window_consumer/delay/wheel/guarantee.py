"""What a worker with wheels commits: nothing beyond the oldest record that waits in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from window_consumer.delay.cancel_layer import Cancelled
from window_consumer.delay.wheel.partition_files import WheelFolder
from window_consumer.delay.wheel.wheels import Wheels
from window_consumer.engine.commits.delivery_guarantee import AtLeastOnce
from window_consumer.engine.counters import Counters
from window_consumer.engine.partition import Partition
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.offset_ranges import Ranges, united, without
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

_SAVE_S: Final = 2.0
"""How often files are written. After a kill, later records are read from Kafka again."""

_LAST_S: Final = 1.0
"""How long the last commit waits for the acks of sent records."""


class WheelGuarantee(AtLeastOnce):
    """Commits nothing beyond the oldest record that waits in a wheel."""

    keeps_finished = True
    counts_ends = False

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        counters: Counters,
        wake: Callable[[Partition], None],
        wheels: Wheels,
        open_empty: Callable[[TopicPartition], WheelFolder],
    ):
        super().__init__(partitions, counters, wake)
        self._wheels = wheels
        self._open_empty = open_empty
        """Opens the wheel of a partition without waiting records."""
        self._saved_at = 0.0

    def begin(self, partition: Partition) -> None:
        """Begin with the prepared wheel if it fits where the window begins."""
        name = partition.name
        folder = self._wheels.take_ready(name) or self._open_empty(name)
        begins_at, hashed = partition.window.next_offset, partition.commit.topic_hash
        is_same_log = folder.committed is None or folder.topic_hash == hashed
        if not (is_same_log and (folder.continues or begins_at == folder.begins_at)):
            if is_same_log and folder.committed is not None and begins_at > folder.committed:
                folder.close()
                raise WorkerStoppedError(
                    f"{name}: begins at {begins_at}, but its wheel at {folder.begins_at}: another"
                    " member has committed in the meantime"
                )
            folder.reset(self._wheels.wall_ms)  # all its records are delivered again
        folder.topic_hash = hashed
        self._wheels.begin(name, folder)

    def next_due(self, now: float) -> float:
        """See DeliveryGuarantee."""
        return self._wheels.next_due(now)

    def commits(self, now: float) -> list[Commit]:
        """Send what is due, then commit as usual."""
        self._take_answers(now)
        self._wheels.fire(now)
        if now - self._saved_at >= _SAVE_S:
            self._saved_at = now
            for partition in self._partitions.values():
                self._save(partition)
        return super().commits(now)

    def _take_answers(self, now: float) -> None:
        cancelled, self._wheels.cancelled = self._wheels.cancelled, 0
        self._counters.count(Cancelled.outcome, cancelled)
        for name, count in self._wheels.take_answers(now).items():
            self._counters.produced += count
            partition = self._partitions.get(name)
            if partition is not None:
                partition.commit.changed = True

    def last(self, released: Sequence[Partition], now: float) -> list[Commit]:
        """Update the commit and the files to everything that is known."""
        self._wheels.wait_for_answers(_LAST_S)
        self._take_answers(now)
        for partition in released:
            self._save(partition)
        return super().last(released, now)

    def commit(self, partition: Partition, now: float, *, clean: bool) -> Commit | None:
        """See DeliveryGuarantee."""
        folder = self._wheels.get(partition.name)
        if folder is not None:
            folder.delete_fired(folder.wheel.over(self._wheels.wall_ms))
            partition.commit.fired = folder.wheel.fired
            partition.commit.waiting = len(folder.wheel)
            low = self.progress(partition)[0]
            partition.commit.delivered = without(folder.wheel.delivered(), [(0, low)])
        return super().commit(partition, now, clean=clean)

    def progress(self, partition: Partition) -> tuple[int, Iterator[range]]:
        """Return the oldest waiting offset, and the offsets taken in beyond it."""
        next_offset, finished = super().progress(partition)
        folder = self._wheels.get(partition.name)
        lowest = None if folder is None else folder.wheel.lowest
        if lowest is None or lowest >= next_offset:
            return next_offset, finished
        taken: Ranges = united([(lowest, next_offset), *((r.start, r.stop) for r in finished)])
        return lowest, (range(*each) for each in taken)

    def _save(self, partition: Partition) -> None:
        folder = self._wheels.get(partition.name)
        if folder is not None:
            next_offset, finished = self.progress(partition)
            taken = united((each.start, each.stop) for each in finished)
            folder.save(taken or ((next_offset, next_offset),))
