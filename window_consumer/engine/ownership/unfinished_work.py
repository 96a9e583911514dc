"""Unfinished work: records without an outcome, running calls, and unacked copies and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from window_consumer.engine.commits.delivery_guarantee import DeliveryGuarantee
from window_consumer.engine.decisions import Outlived
from window_consumer.engine.guards.stalls import Stalls
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.output import Output
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.lane_ownership import LaneOwnership
from window_consumer.engine.scheduling.outlived_calls import OutlivedCalls
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import TopicPartition


class UnfinishedWork:
    """Knows the unfinished work of one worker. Owner: poll thread."""

    def __init__(  # noqa: PLR0913 - everything that may be waited for
        self,
        partitions: Mapping[TopicPartition, Partition],
        dispatcher: Dispatcher,
        failed_records: FailedRecords,
        output: Output,
        guarantee: DeliveryGuarantee,
        stalls: Stalls,
        lane_ownership: LaneOwnership,
        outlived: OutlivedCalls,
    ):
        self._partitions = partitions
        self._dispatcher = dispatcher
        self._failed_records = failed_records
        self._output = output
        self._guarantee = guarantee
        self._stalls = stalls
        self._lane_ownership = lane_ownership
        self._outlived = outlived

    def busy(self, names: Iterable[TopicPartition]) -> bool:
        """Return whether anything of these partitions is running or awaits an ack.

        This includes calls for copies whose lanes leave with these partitions.
        """
        owned = [self._partitions[name] for name in names if name in self._partitions]
        return any(self.is_busy(each) or self._lane_ownership.busy(each) for each in owned)

    def is_busy(self, partition: Partition) -> bool:
        """Return whether anything of a partition is running or awaits an ack."""
        return (
            bool(partition.slices)
            or self._is_publishing(partition)
            or self._guarantee.is_draining(partition)
        )

    def _is_publishing(self, partition: Partition) -> bool:
        unacked = self._failed_records.unacked
        return any(each.partition is partition for each in unacked) or self._output.is_sending(
            partition
        )

    def worth_waiting_for(self, now: float) -> bool:
        """Return whether a call that is not known to hang is running, or an ack is pending."""
        # A slice that was taken back whole is only queued, perhaps behind hanging calls.
        begun = [each for each in self._dispatcher.out if each.messages]
        calls = any(not self._stalls.hangs(each, now) for each in begun)
        return calls or any(
            self._is_publishing(each) or self._guarantee.is_draining(each)
            for each in self._partitions.values()
        )

    def running(self, names: Iterable[TopicPartition]) -> list[Slice]:
        """Return the slices of these partitions that slots have not completed."""
        owned = {self._partitions[name] for name in names if name in self._partitions}
        return [slice_ for slice_ in self._dispatcher.out if slice_.partition in owned]

    @property
    def waiting_for_results(self) -> bool:
        """A slot or the broker will report a result without further action."""
        return bool(self._dispatcher.out or self._failed_records.unacked or self._output.unacked)

    def unfinished(self) -> int:
        """Return how many delivered records have no final outcome."""
        return sum(each.window.open + each.buffered for each in self._partitions.values())

    def first_unfinished(self) -> Sequence[tuple[TopicPartition, int]]:
        """Return the first unfinished record of each partition that has one."""
        offsets = ((each.name, each.first_unfinished) for each in self._partitions.values())
        return [(name, offset) for name, offset in offsets if offset is not None]

    def outlive(self, partition: Partition, now: float) -> list[Outlived]:
        """Cancel and return the running calls of a partition that is released.

        Their lanes stay busy until the calls have really ended.
        """
        outlived = []
        for slice_ in self._dispatcher.slices_of(partition):
            slice_.call.cancelled = True
            self._dispatcher.split(slice_)
            abandoned = slice_ in self._dispatcher.abandoned
            hangs = abandoned or self._stalls.hangs(slice_, now)
            outlived += [
                Outlived(
                    partition.name,
                    message.offset(),
                    message.key(),
                    abandoned=abandoned,
                    hangs=hangs,
                )
                for message in slice_.all_running()
            ]
            self._outlived.add(slice_)
        return outlived
