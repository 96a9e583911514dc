"""What several looks at a worker say together: rates and shares, which one look cannot have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from statistics import fmean, median
from typing import Final

from attrs import define

from window_consumer.admin.doctor.samples import (
    GroupLook,
    WorkerLook,
)
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.windows_snapshot import (
    LoopSnapshot,
    PartitionSnapshot,
    WindowsSnapshot,
)
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.worker_snapshot import FailingRecord

BEHIND_S: Final = 2.0
"""What takes longer to be done with is lag: a busy worker always has some records in its hands."""

OLD_S: Final = 10.0
"""Whose oldest record is older than this is behind, however few there are."""


@define(slots=False)
class WorkerEvidence:
    """A worker of one process, and its group. Nothing in it changes.

    ``looks`` are in the order of time, and not empty.
    """

    worker: str
    where: str
    """Which of several that have its name; empty where there is one."""
    ordering: str
    pool: str
    looks: Sequence[WorkerLook]
    group: Sequence[GroupLook] = ()
    round_trips_s: Sequence[float] = ()
    """How long the cluster took to answer quick questions."""
    is_cluster_silent: bool = False
    """It was asked, and has answered nothing."""
    blocks: bool = False
    """A record that fails holds its lane up until it is done (``retry.on_failure: block``)."""

    @property
    def first(self) -> WorkerLook:
        """The first look."""
        return self.looks[0]

    @property
    def last(self) -> WorkerLook:
        """The last one."""
        return self.looks[-1]

    @property
    def now(self) -> WindowsSnapshot:
        """The windows at the last look."""
        return self.last.windows

    @property
    def seconds(self) -> float:
        """What lies between them."""
        return self.last.at_s - self.first.at_s

    def _per_s(self, of: Callable[[WorkerLook], float]) -> float:
        return max(0.0, of(self.last) - of(self.first)) / max(self.seconds, 1e-9)

    def mean(self, of: Callable[[WorkerLook], float]) -> float:
        """Return the mean of a figure over all looks."""
        return fmean(map(of, self.looks))

    # ---- calls

    @cached_property
    def finished_per_s(self) -> float:
        """Records that were finished a second."""
        return self._per_s(lambda look: look.windows.counters.finished)

    @cached_property
    def durations(self) -> Histogram:
        """The calls that ended meanwhile."""
        return self.now.durations.since(self.first.windows.durations)

    @cached_property
    def busy_ratio(self) -> float:
        """The share of the slots' time that calls took."""
        slots = self.mean(lambda look: look.windows.limit_now)
        seen = self.mean(lambda look: min(1.0, look.running / max(1, look.windows.limit_now)))
        if self.seconds <= 0:
            return seen
        ended = self.durations.seconds
        if self.first.running_s is None or self.last.running_s is None:
            return min(1.0, max(seen, ended / (self.seconds * slots)))
        took = ended + self.last.running_s - self.first.running_s
        return min(1.0, max(0.0, took / (self.seconds * slots)))

    @cached_property
    def cores(self) -> float:
        """How many processors calls on threads had, on average; 0 for other calls."""
        return self.durations.computed_s / max(self.seconds, 1e-9)

    @cached_property
    def loop_cores(self) -> float | None:
        """How much of a processor the event loop had; None where handlers are no coroutines."""
        return self._of_loop(lambda loop: loop.computed_s)

    @cached_property
    def loop_late(self) -> float | None:
        """For which share of the time the event loop should have gone round, and did not."""
        return self._of_loop(lambda loop: loop.late_s)

    def _of_loop(self, of: Callable[[LoopSnapshot], float]) -> float | None:
        first, last = self.first.windows.loop, self.now.loop
        if first is None or last is None:
            return None
        return max(0.0, of(last) - of(first)) / max(self.seconds, 1e-9)

    @cached_property
    def seconds_a_record(self) -> float | None:
        """The slots' time that a finished record took, retries included; None where none was."""
        finished = self.finished_per_s * self.seconds
        if not finished:
            return None
        return (
            self.busy_ratio
            * self.mean(lambda look: look.windows.limit_now)
            * self.seconds
            / finished
        )

    # ---- lag

    @staticmethod
    def lag_of(look: WorkerLook) -> int | None:
        """Return how many records lag, None where that is not known of any partition."""
        lags = [each.unfinished for each in look.windows.partitions]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known else None

    @cached_property
    def lag(self) -> int:
        """Records that lagged at the last look."""
        return self.lag_of(self.last) or 0

    @cached_property
    def lag_s(self) -> float:
        """The age of the oldest record that was read and was not finished at the last look."""
        return max((each.lag.seconds for each in self.now.partitions), default=0.0)

    @cached_property
    def arriving_per_s(self) -> float:
        """Records that came into the log a second."""
        first, last = self.lag_of(self.first), self.lag_of(self.last)
        if first is None or last is None or self.seconds <= 0:
            return self.finished_per_s
        return max(0.0, self.finished_per_s + (last - first) / self.seconds)

    @cached_property
    def drain_s(self) -> float:
        """How long what lags would take at this pace, without what arrives meanwhile."""
        if not self.lag:
            return 0.0
        return self.lag / self.finished_per_s if self.finished_per_s else float("inf")

    @cached_property
    def is_behind(self) -> bool:
        """There was lag at every look, and more than is in hand."""
        if not all(self.lag_of(look) for look in self.looks):
            return False
        return self.drain_s > BEHIND_S or self.lag_s > OLD_S

    @cached_property
    def unread(self) -> int:
        """Records that lag and have not come to the worker."""
        return sum(each.unread or 0 for each in self.now.partitions)

    # ---- partitions

    def of_partition(
        self, name: TopicPartition, of: Callable[[PartitionSnapshot], float]
    ) -> list[float]:
        """Return a partition's figure at each look that had the partition."""
        seen = (each for look in self.looks for each in look.windows.partitions)
        return [of(each) for each in seen if each.name == name]

    def poison_of(self, partition: PartitionSnapshot) -> FailingRecord | None:
        """Return the record that blocks most others of a partition, None where none does.

        It has failed at the first look, and has not got over it.
        """
        if not self.blocks or self.now.breaker.state not in {"closed", "holding"}:
            return None
        before = {each.offset for each in self.first.blocking(partition.name)}
        blocking = self.last.blocking(partition.name)
        found = [each for each in blocking if each.behind and each.offset in before]
        return max(found, key=lambda each: each.behind, default=None)

    # ---- the cluster

    @cached_property
    def round_trip_s(self) -> float | None:
        """How long the cluster takes to answer, usually; None where it was not asked."""
        return median(self.round_trips_s) if self.round_trips_s else None

    @cached_property
    def commit_s(self) -> float | None:
        """How long a commit waits for its ack, on average; None where there was none."""
        before, did = self.first.windows.counters, self.now.counters
        commits = did.commits - before.commits
        return max(0.0, did.commits_s - before.commits_s) / commits if commits > 0 else None
