"""Records that are lost: committed, and released before their calls had ended."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from window_consumer.engine.commits.delivery_guarantee import DeliveryGuarantee
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.output import Output
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message, TopicPartition


@frozen
class LostRecords:
    """The lost records of one partition, by their offsets, ascending."""

    name: TopicPartition
    offsets: Sequence[int]


class Losses:
    """Finds and counts records that will not be delivered again. Owner: poll thread."""

    def __init__(
        self,
        guarantee: DeliveryGuarantee,
        dispatcher: Dispatcher,
        completion: Completion,
        output: Output,
        failed_records: FailedRecords,
        outcomes: RecordOutcomes,
    ):
        self._guarantee = guarantee
        self._dispatcher = dispatcher
        self._completion = completion
        self._output = output
        self._failed_records = failed_records
        self._outcomes = outcomes
        self._lost: list[LostRecords] = []

    def count(self, partition: Partition, now: float) -> None:
        """Finish the lost records of a partition that is about to be released."""
        if self._guarantee.repeats:
            return
        slices = self._dispatcher.slices_of(partition)
        for slice_ in slices:
            self._completion.take_back(slice_, now)
        self._dispatcher.release_gathered(partition)
        found: dict[int, Message] = dict(partition.ordering.waiting())
        for slice_ in slices:
            found.update(zip(slice_.seqs, slice_.messages, strict=True))
        for production in self._output.of(partition):
            found.update(zip(production.seqs, production.messages, strict=True))
        found.update(
            {seq: each.message for seq, each in self._failed_records.of(partition).items()}
        )
        lost = sorted(seq for seq in found if self._guarantee.is_lost(partition, seq))
        if lost:
            messages = [found[seq] for seq in lost]
            self._lost.append(LostRecords(partition.name, [each.offset() for each in messages]))
            self._outcomes.finish(partition, messages, lost, Outcome.LOST, now)

    def take(self) -> list[LostRecords]:
        """Return the records lost since the last call."""
        lost, self._lost = self._lost, []
        return lost
