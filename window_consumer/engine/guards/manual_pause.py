"""Manual pauses: partitions, or the whole worker, that start nothing until a user resumes them.

Running calls may finish, copies are written, commits continue, and the worker stays in its group.
Records come in until the window is full. Failed records wait too, even if their next call is due. A
paused worker stays paused whatever is assigned to it; the pause of one partition ends when the
partition is released.
"""

from __future__ import annotations

from collections.abc import Mapping

from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.model.record import TopicPartition


class ManualPauses:
    """The manual pauses of one worker. Owner: poll thread."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        dispatcher: Dispatcher,
        failed_records: FailedRecords,
        completion: Completion,
    ):
        self._partitions = partitions
        self._dispatcher = dispatcher
        self._failed_records = failed_records
        self._completion = completion
        self.worker = False
        """The whole worker is paused, including future assignments."""
        self._alone: set[TopicPartition] = set()
        """Partitions that are paused individually."""

    def halt(self, name: TopicPartition | None, now: float, *, halted: bool) -> bool:
        """Pause or resume a partition, or the worker for None; False for a partition of others."""
        if name is None:
            self.worker = halted
        elif name not in self._partitions:
            return False
        elif halted:
            self._alone.add(name)
        else:
            self._alone.discard(name)
        for partition in self._partitions.values():
            is_halted = self._is_halted(partition)
            was_halted = HoldReason.MANUAL in partition.holds
            partition.set_hold(HoldReason.MANUAL, held=is_halted)
            if is_halted and not was_halted:
                hold_back(partition, self._dispatcher, self._completion, now)
            elif was_halted and not is_halted:
                self._resume_work(partition, now)
        return True

    def assigned(self, partition: Partition) -> None:
        """Apply a pause of the worker to a new partition."""
        partition.set_hold(HoldReason.MANUAL, held=self._is_halted(partition))

    def remove(self, name: TopicPartition) -> None:
        """Remove a released partition."""
        self._alone.discard(name)

    def _is_halted(self, partition: Partition) -> bool:
        return self.worker or partition.name in self._alone

    def _resume_work(self, partition: Partition, now: float) -> None:
        if not partition.is_assigned or partition.is_suspended:
            return
        self._failed_records.call_held(partition)
        self._completion.advance(partition, now)


def hold_back(
    partition: Partition, dispatcher: Dispatcher, completion: Completion, now: float
) -> None:
    """Take back the unstarted records of a partition that is held back from now on."""
    dispatcher.release_gathered(partition)
    dispatcher.remove(partition)
    for slice_ in [each for each in dispatcher.out if each.partition is partition]:
        completion.take_back(slice_, now)
