"""The delivery guarantee: when records may start, and which of them the next commit covers.

This is the engine's half. The other half, ``runtime/writing``, decides where copies and results go,
and when their acks free lanes and finish records.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from window_consumer.engine.commits.commit_metadata import MAX_BYTES
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.window import Window
from window_consumer.model.protocols import Commit, CommitResults
from window_consumer.model.record import TopicPartition

if TYPE_CHECKING:
    from window_consumer.engine.counters import Counters
    from window_consumer.engine.observer import Observer
    from window_consumer.engine.partition import Partition
    from window_consumer.engine.scheduling.slices import Slice

_SMALLEST_METADATA = 32
"""The smallest metadata limit. Offset and suspect must fit: a suspect waits for the ack of its
commit."""


class DeliveryMode(StrEnum):
    """How often a record of a worker may run, as in the configuration."""

    AT_LEAST_ONCE = "at_least_once"
    """A record counts as finished after its call; a crash repeats calls."""
    EXACTLY_ONCE = "exactly_once"
    """Results, copies and offsets are one transaction; readers of committed records see it once."""
    AT_MOST_ONCE = "at_most_once"
    """A record counts as finished before its call; a crash loses calls and repeats none."""
    BROADCAST = "broadcast"
    """Every process gets every record; nothing is committed."""


class DeliveryGuarantee(ABC):
    """Decides when one worker's records start and what it commits. Owner: poll thread.

    The methods that are not abstract are the same for most guarantees.
    """

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        counters: Counters,
        wake: Callable[[Partition], None],
    ):
        self._partitions = partitions
        """The assigned partitions, including those that are being revoked."""
        self._counters = counters
        self._wake = wake
        """Called when further records of a partition may start."""
        self._metadata_bytes = MAX_BYTES
        self.observer: Observer | None = None

    keeps_finished: ClassVar[bool] = False
    """Finished records may still wait elsewhere. A commit's offset stays before them, its ranges
    say which were taken in, and the window begins behind them. Records that finished without a
    commit are forgotten, like those that waited."""

    recalls_lost: ClassVar[bool] = True
    """If a lost partition returns, records that this member had finished need not run again."""

    counts_ends: ClassVar[bool] = True
    """Its commits say whether a partition is in use, so that unclean ends can be counted."""

    repeats: ClassVar[bool] = True
    """A crash repeats calls, so a record that ends its process is found, see ``crash_suspects``."""

    awaits_ack: bool = False
    """Slices wait for the ack of a commit, which should be polled for soon."""

    is_due: bool = False
    """A commit should be made at once."""

    def window(self, next_offset: int, cells: int, cell_records: int) -> Window:
        """Return the window of a new partition."""
        return Window(next_offset, cells, cell_records)

    def next_due(self, now: float) -> float:
        """Return when ``commits`` must be asked again at the latest."""
        del now
        return math.inf

    def begin(self, partition: Partition) -> None:  # noqa: B027 - most let records start at once
        """Take a new partition before its first record arrives.

        A guarantee that delays starts puts an ordering around the partition's own.
        """

    def starting(self, slices: list[Slice]) -> list[Slice]:
        """Take the slices that are about to start; return those that may go to the slots now."""
        return slices

    def unstarted(self, partition: Partition, slices: Sequence[Slice]) -> Sequence[Slice]:
        """Return the slices to take back from a partition that is being revoked."""
        del partition
        return slices

    def revoking(self, partition: Partition) -> None:
        """Discard records that wait to start: the partition is about to be released."""
        partition.ordering.clear()

    def released(self, partition: Partition) -> None:  # noqa: B027 - most keep nothing of it
        """Let go of a partition that is released now; its slices have no unstarted records."""

    def is_draining(self, partition: Partition) -> bool:
        """Return whether records of a partition that is being revoked must still start."""
        del partition
        return False

    def is_lost(self, partition: Partition, seq: int) -> bool:
        """Return whether a record without an outcome will not be delivered again."""
        del partition, seq
        return False

    @abstractmethod
    def commits(self, now: float) -> list[Commit]:
        """Return the commits of this tick; called every few milliseconds."""

    @abstractmethod
    def progress(self, partition: Partition) -> tuple[int, Iterator[range]]:
        """Return the next offset to commit, and the ranges at or beyond it that are finished."""

    def commit(self, partition: Partition, now: float, *, clean: bool) -> Commit | None:
        """Take one snapshot of offset and ranges; None if the broker already has it.

        ``clean`` says that the partition is released and nothing of it is in progress.
        """
        next_offset, finished = self.progress(partition)
        commit = partition.commit.make(
            next_offset, finished, now, self._metadata_bytes, clean=clean
        )
        partition.set_hold(HoldReason.METADATA_FULL, held=partition.commit.tight)
        if commit is not None and self.observer is not None:
            self.observer.committing(partition, commit, now)
        return commit

    def last(self, released: Sequence[Partition], now: float) -> list[Commit]:
        """Return the final commits when these partitions are about to be released."""
        return self._commits(released, now, clean=True)

    def _commits(self, partitions: Iterable[Partition], now: float, *, clean: bool) -> list[Commit]:
        commits = (self.commit(each, now, clean=clean) for each in partitions)
        return [each for each in commits if each is not None]

    def answered(self, results: CommitResults, now: float) -> None:
        """Process the results of commits; a refused commit is recreated when it is next due."""
        for name, error in results.items():
            partition = self._partitions.get(name)
            if partition is None or not partition.commit.in_flight:
                continue
            if error is None:
                self._counters.commits += 1
                self._counters.commits_s += max(0.0, now - partition.commit.sent_at)
                self.acked(partition, partition.commit.acked())
                continue
            if error.metadata_too_large:
                # Several commits refused together say the same: the limit is halved once.
                less = max(_SMALLEST_METADATA, partition.commit.bytes_in_flight // 2)
                self._metadata_bytes = min(self._metadata_bytes, less)
            partition.commit.refused()
            self.refused(partition)
            self._counters.commit_failures += 1

    def acked(self, partition: Partition, commit: Commit) -> None:  # noqa: B027 - most ignore it
        """Process the broker's ack of a commit."""

    def refused(self, partition: Partition) -> None:  # noqa: B027 - as above
        """Process the failure of a commit, which the broker may have accepted all the same."""


class AtLeastOnce(DeliveryGuarantee):
    """Records start at once, and are committed periodically once they are finished."""

    def commits(self, now: float) -> list[Commit]:
        """Commit each partition that has changed, every ``commit_interval``."""
        due = [
            each for each in self._partitions.values() if each.is_assigned and each.commit.due(now)
        ]
        return self._commits(due, now, clean=False)

    def progress(self, partition: Partition) -> tuple[int, Iterator[range]]:
        """Return the offsets that have their final outcomes.

        The client's position counts only if the window is empty and all records before it were
        taken in: transaction markers may follow the last record.
        """
        next_offset = partition.window.next_offset
        if partition.idle and not partition.window.cells:
            next_offset = max(next_offset, partition.end_of_taken)
        return next_offset, ranges_from(next_offset, partition.finished_ranges())


def ranges_from(next_offset: int, finished: Iterable[range]) -> Iterator[range]:
    """Yield the finished offsets at or beyond an offset."""
    return (
        each if each.start >= next_offset else range(next_offset, each.stop)
        for each in finished
        if each.stop > next_offset
    )


MakeGuarantee = Callable[
    [Mapping[TopicPartition, "Partition"], "Counters", Callable[["Partition"], None]],
    DeliveryGuarantee,
]
