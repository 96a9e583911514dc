"""Which records of lost partitions had finished, in case the partitions return to this member.

A member whose session timed out may get its partitions back. No commit covers what it finished
after its last one. If the group's committed entry is still one that this member wrote or found,
nobody has moved the offset in the meantime: finished records need not run again.

Only for unordered workers: a missing commit does not prove that no other member has called a
handler in the meantime (decision 35).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from attrs import frozen

from window_consumer.engine.commits.commit_state import CommitState
from window_consumer.engine.window import Window
from window_consumer.model.offset_ranges import Ranges, united, without
from window_consumer.model.protocols import CommittedOffset
from window_consumer.model.record import TopicPartition

KEPT_S = 300.0
"""After this time another member has the partition and has committed, so this memory is freed."""


@frozen(eq=False)
class PartitionOutcomes:
    """What had finished in a partition when it was lost. Observers attach their own data to it."""

    commits: frozenset[tuple[int, str]]
    """The offset and metadata of each commit that may be the last one the broker accepted."""
    topic_hash: int
    finished: Ranges
    """The finished offsets, from the lowest of those on."""
    until: float

    def beyond(self, next_offset: int) -> tuple[range, ...]:
        """Return the finished ranges at or beyond an offset."""
        return tuple(range(*each) for each in without(self.finished, ((0, next_offset),)))


class LostPartition(Protocol):
    """A lost partition, and what is kept of it."""

    name: TopicPartition
    commit: CommitState
    window: Window
    kept: PartitionOutcomes | None

    def finished_ranges(self) -> Iterator[range]:
        """Yield the finished ranges beyond the window's next offset."""


class KeptOutcomes:
    """Keeps lost partitions for five minutes in case they return. Owner: poll thread.

    Memory: the finished ranges of the lost windows, and the data of observers.
    """

    def __init__(self, *, ordered: bool, keeps_finished: bool = False, recalls: bool = True):
        self.remembers = recalls and not (ordered or keeps_finished)
        """False keeps nothing: uncommitted records run again."""
        self.keeps_finished = keeps_finished
        """See ``DeliveryGuarantee``."""
        self._kept: dict[TopicPartition, PartitionOutcomes] = {}

    def keep(self, partition: LostPartition, now: float) -> None:
        """Keep a lost partition's outcomes, before it is released."""
        commits = partition.commit.perhaps_committed
        # Without an id a recreated topic could not be recognised.
        if not (self.remembers and commits and partition.commit.topic_hash):
            return
        passed = (min(offset for offset, _ in commits), partition.window.next_offset)
        beyond = [(each.start, each.stop) for each in partition.finished_ranges()]
        finished = united([passed, *beyond])
        if finished:
            topic_hash = partition.commit.topic_hash
            partition.kept = PartitionOutcomes(commits, topic_hash, finished, now + KEPT_S)
            self._kept[partition.name] = partition.kept

    def knows(self, name: TopicPartition) -> bool:
        """Return whether outcomes of a partition are kept."""
        return name in self._kept

    def recall(
        self, name: TopicPartition, committed: CommittedOffset, topic_hash: int, log_end: int
    ) -> PartitionOutcomes | None:
        """Return, once, what is kept of a partition that begins; None if it no longer holds."""
        kept = self._kept.pop(name, None)
        if kept is None or not self.counts(kept, committed):
            return None
        # A shorter log was truncated: its offsets may belong to other records now.
        is_same_log = kept.topic_hash == topic_hash and kept.finished[-1][1] <= log_end
        return kept if is_same_log else None

    def counts(self, kept: PartitionOutcomes, committed: CommittedOffset) -> bool:
        """Return whether no other member has moved the committed offset."""
        return (committed.next_offset, committed.metadata) in kept.commits

    def expire(self, now: float) -> None:
        """Discard partitions that were lost long ago."""
        if self._kept:
            self._kept = {name: each for name, each in self._kept.items() if now < each.until}
