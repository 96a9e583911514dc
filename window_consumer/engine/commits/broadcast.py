"""The guarantee of a worker whose process reads every record itself: nothing is committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from window_consumer.engine.commits.delivery_guarantee import AtLeastOnce
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

if TYPE_CHECKING:
    from window_consumer.engine.counters import Counters
    from window_consumer.engine.partition import Partition


@frozen
class HandledPosition:
    """How far a partition had been handled when it was released."""

    topic_id: str | None
    next_offset: int
    finished: tuple[range, ...]
    """Finished offsets at or beyond that offset."""


class Broadcast(AtLeastOnce):
    """Records start at once; only this process remembers which are finished."""

    counts_ends = False

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        counters: Counters,
        wake: Callable[[Partition], None],
    ):
        super().__init__(partitions, counters, wake)
        self.handled: dict[TopicPartition, HandledPosition] = {}
        """The positions of partitions that this worker or a predecessor released."""

    def commits(self, now: float) -> list[Commit]:
        """Commit nothing."""
        del now
        return []

    def last(self, released: Sequence[Partition], now: float) -> list[Commit]:
        """Remember where the released partitions continue."""
        del now
        for each in released:
            next_offset, finished = self.progress(each)
            position = HandledPosition(each.topic_id, next_offset, tuple(finished))
            self.handled[each.name] = position
        return []
