"""Lost partitions: which records had finished, for when one comes back to the same member.

A member whose session timed out may get its partitions back, and what it finished after its last
commit is committed nowhere. Where the group's entry is still one that this member wrote, or found,
nobody has moved the offset meanwhile: what had finished need not run again.

Only for workers without an order: that nobody has committed does not prove that nobody else has
called a handler meanwhile (decision 35).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from attrs import frozen

from window_consumer.engine.commits import CommitState
from window_consumer.engine.window import Window
from window_consumer.model.offset_ranges import (
    Ranges,
    united,
    without,
)
from window_consumer.model.protocols import CommittedOffset
from window_consumer.model.record import TopicPartition

KEPT_S = 300.0
"""After so long somebody else has the partition and has committed: memory is not for that."""


@frozen(eq=False)
class PartitionOutcomes:
    """What had finished of a partition when it was lost. Observers hang their own notes on it."""

    commits: frozenset[tuple[int, str]]
    """Offset and metadata of each commit that may be the last one that the broker took."""
    topic_hash: int
    finished: Ranges
    """From the lowest of those offsets on."""
    until: float

    def beyond(self, next_offset: int) -> tuple[range, ...]:
        """Return what had finished from an offset on."""
        return tuple(range(*each) for each in without(self.finished, ((0, next_offset),)))


class LostPartition(Protocol):
    """A partition that is lost: what is remembered of it, and where it is noted."""

    name: TopicPartition
    commit: CommitState
    window: Window
    kept: PartitionOutcomes | None

    def finished_ranges(self) -> Iterator[range]:
        """Yield what is finished beyond the window's next offset."""


class KeptOutcomes:
    """Remembers lost partitions until they come back, for five minutes. Owner: poll thread.

    Memory: ranges, as many as the lost windows had, and the notes of observers.
    """

    def __init__(self, *, ordered: bool):
        self.remembers = not ordered
        """False keeps nothing: what no commit covers runs again."""
        self._kept: dict[TopicPartition, PartitionOutcomes] = {}

    def keep(self, partition: LostPartition, now: float) -> None:
        """Remember a partition that is lost, before it is given up."""
        commits = partition.commit.perhaps_committed
        # Without an id nobody could tell a topic that was made anew.
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
        """Tell whether something is remembered of a partition."""
        return name in self._kept

    def recall(
        self, name: TopicPartition, committed: CommittedOffset, topic_hash: int, log_end: int
    ) -> PartitionOutcomes | None:
        """Return, once, what is remembered of a partition that begins; None where it is void."""
        kept = self._kept.pop(name, None)
        if kept is None or not self.counts(kept, committed):
            return None
        # A shorter log was cut: nobody knows which records its offsets are now.
        is_same_log = kept.topic_hash == topic_hash and kept.finished[-1][1] <= log_end
        return kept if is_same_log else None

    def counts(self, kept: PartitionOutcomes, committed: CommittedOffset) -> bool:
        """Tell whether nobody else has moved what is committed."""
        return (committed.next_offset, committed.metadata) in kept.commits

    def expire(self, now: float) -> None:
        """Forget what was lost long ago."""
        if self._kept:
            self._kept = {name: each for name, each in self._kept.items() if now < each.until}
