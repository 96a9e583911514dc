"""Members' memory of lost partitions, and its audits, with one planted bug each."""

from __future__ import annotations

from attrs import evolve

from window_consumer.audit.consumer import ConsumerAudit
from window_consumer.engine.commits.lost_partitions import (
    KeptOutcomes,
    LostPartition,
    PartitionOutcomes,
)
from window_consumer.engine.partition import Partition
from window_consumer.model.protocols import CommittedOffset


class KeepsWhateverIsCommitted(KeptOutcomes):
    """Outcomes are kept although another member, or a person, has committed meanwhile."""

    def counts(self, kept: PartitionOutcomes, committed: CommittedOffset) -> bool:  # noqa: ARG002 - as declared
        return committed.next_offset is not None


class KeepsWhatHadNotFinished(KeptOutcomes):
    """All that was delivered counts as finished."""

    def keep(self, partition: LostPartition, now: float) -> None:
        assert isinstance(partition, Partition)
        super().keep(partition, now)
        kept = self._kept.get(partition.name)
        if kept is not None:
            low, stop = kept.finished[0][0], max(kept.finished[-1][1], partition.next_delivery)
            partition.kept = evolve(kept, finished=((low, stop),))
            self._kept[partition.name] = partition.kept


class ForgetsAtOnce(KeptOutcomes):
    """Nothing is kept."""

    def knows(self, name: object) -> bool:  # noqa: ARG002 - as declared
        return False

    def counts(self, kept: PartitionOutcomes, committed: CommittedOffset) -> bool:  # noqa: ARG002 - as declared
        return False


class KeepsAmongOrderedRecords(KeptOutcomes):
    """The worker's order does not matter."""

    def __init__(self, *, ordered: bool):  # noqa: ARG002 - as declared
        super().__init__(ordered=False)


class CountsOnlyFromTheReturnOn(ConsumerAudit):
    """Records that had finished before a loss are taken as counted."""

    def given_up(self, partition: Partition, now: float) -> None:
        super().given_up(partition, now)
        self._kept.clear()
