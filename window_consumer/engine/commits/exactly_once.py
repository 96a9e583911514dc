"""Exactly once: outputs, and the commits of the records they belong to, are one transaction.

``runtime/writing/exactly_once`` is the other half: it writes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from window_consumer.engine.commits.delivery_guarantee import AtLeastOnce
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

if TYPE_CHECKING:
    from window_consumer.engine.counters import Counters
    from window_consumer.engine.partition import Partition

WINDOW_OFFSETS: Final = 23_000
"""How many offsets a window may span. A bitmap of this many always fits into a commit, whichever
records are finished: no range is ever cut off."""

_SOON_S: Final = 0.005


class ExactlyOnce(AtLeastOnce):
    """Commits all partitions together: a transaction holds the outputs of all."""

    recalls_lost: ClassVar[bool] = False

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        counters: Counters,
        wake: Callable[[Partition], None],
        *,
        interval_s: float,
    ):
        """``interval_s`` is the time from one transaction to the next."""
        super().__init__(partitions, counters, wake)
        self._interval_s = interval_s
        self._due_at = 0.0

    def begin(self, partition: Partition) -> None:
        """Limit how many offsets its window spans."""
        partition.window.most_offsets = WINDOW_OFFSETS

    def next_due(self, now: float) -> float:
        """Return when the next transaction ends."""
        changed = False
        for partition in self._partitions.values():
            if partition.commit.in_flight:
                return math.inf
            changed = changed or partition.commit.is_wanted
        return max(self._due_at, now + _SOON_S) if changed else math.inf

    def commits(self, now: float) -> list[Commit]:
        """Commit all that has changed, every ``interval_s``, revoked partitions included.

        The previous commits must have been answered.
        """
        partitions = self._partitions.values()
        if now < self._due_at or any(each.commit.in_flight for each in partitions):
            return []
        commits = self._changed(partitions, now)
        if commits:
            self._due_at = now + self._interval_s
        return commits

    def last(self, released: Sequence[Partition], now: float) -> list[Commit]:
        """Return the final commits of these partitions, and those of all others."""
        others = [each for each in self._partitions.values() if each not in released]
        return super().last(released, now) + self._changed(others, now)

    def _changed(self, partitions: Iterable[Partition], now: float) -> list[Commit]:
        wanted = [each for each in partitions if each.commit.is_wanted]
        return self._commits(wanted, now, clean=False)
