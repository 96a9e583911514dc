"""Rates and shares of a worker, computed from several observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from statistics import fmean, median
from typing import Final

from attrs import define

from window_consumer.admin.doctor.samples import GroupLook, WorkerLook
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.windows_snapshot import LoopSnapshot, PartitionSnapshot, WindowsSnapshot
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.worker_snapshot import FailingRecord

BEHIND_S: Final = 2.0
"""Lag takes longer than this to drain: a busy worker always has some open records."""

OLD_S: Final = 10.0
"""A worker whose oldest record is older than this is behind, however few there are."""


@define(slots=False)
class WorkerEvidence:
    """The observations of a worker in one process, and of its group. Immutable.

    ``looks`` are ordered by time and not empty.
    """

    worker: str
    where: str
    """The process in words; empty if there is only one."""
    ordering: str
    pool: str
    looks: Sequence[WorkerLook]
    group: Sequence[GroupLook] = ()
    round_trips_s: Sequence[float] = ()
    """The cluster's answer times for pings."""
    is_cluster_silent: bool = False
    """The cluster was queried and never answered."""
    blocks: bool = False
    """A failing record blocks its lane until it is done (``retry.on_failure: block``)."""
    admin_url: str = ""
    """Its process' admin address; empty if it was observed by its metrics."""

    @property
    def first(self) -> WorkerLook:
        """Return the first observation."""
        return self.looks[0]

    @property
    def last(self) -> WorkerLook:
        """Return the last observation."""
        return self.looks[-1]

    @property
    def now(self) -> WindowsSnapshot:
        """Return the windows of the last observation."""
        return self.last.windows

    @property
    def seconds(self) -> float:
        """Return the time between the two."""
        return self.last.at_s - self.first.at_s

    def _per_s(self, of: Callable[[WorkerLook], float]) -> float:
        return max(0.0, of(self.last) - of(self.first)) / max(self.seconds, 1e-9)

    def mean(self, of: Callable[[WorkerLook], float]) -> float:
        """Return the mean of a figure over all observations."""
        return fmean(map(of, self.looks))

    # ---- calls

    @cached_property
    def finished_per_s(self) -> float:
        """Return the finished records per second."""
        return self._per_s(lambda look: look.windows.counters.finished)

    @cached_property
    def durations(self) -> Histogram:
        """Return the durations of the calls that ended in between."""
        return self.now.durations.since(self.first.windows.durations)

    @cached_property
    def busy_ratio(self) -> float:
        """Return the share of the slots' time that calls took."""
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
        """Return how many processors calls on threads used on average; 0 for other calls."""
        return self.durations.computed_s / max(self.seconds, 1e-9)

    @cached_property
    def loop_cores(self) -> float | None:
        """Return how much of a processor the event loop used; None without coroutine handlers."""
        return self._of_loop(lambda loop: loop.computed_s)

    @cached_property
    def loop_late(self) -> float | None:
        """Return the share of time by which the event loop's turns were late."""
        return self._of_loop(lambda loop: loop.late_s)

    def _of_loop(self, of: Callable[[LoopSnapshot], float]) -> float | None:
        first, last = self.first.windows.loop, self.now.loop
        if first is None or last is None:
            return None
        return max(0.0, of(last) - of(first)) / max(self.seconds, 1e-9)

    @cached_property
    def seconds_a_record(self) -> float | None:
        """Return the slot time per finished record, including retries; None without any."""
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
        """Return the number of lagging records, None if no partition reports it."""
        lags = [each.unfinished for each in look.windows.partitions]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known else None

    @cached_property
    def lag(self) -> int:
        """Return the number of lagging records in the last observation."""
        return self.lag_of(self.last) or 0

    @cached_property
    def lag_s(self) -> float:
        """Return the age of the oldest unfinished record that was read, at the last observation."""
        return max((each.lag.seconds for each in self.now.partitions), default=0.0)

    @cached_property
    def arriving_per_s(self) -> float:
        """Return the records per second that were written to the log."""
        first, last = self.lag_of(self.first), self.lag_of(self.last)
        if first is None or last is None or self.seconds <= 0:
            return self.finished_per_s
        return max(0.0, self.finished_per_s + (last - first) / self.seconds)

    @cached_property
    def drain_s(self) -> float:
        """Return the time to work off the lag at this pace, without new records."""
        if not self.lag:
            return 0.0
        return self.lag / self.finished_per_s if self.finished_per_s else float("inf")

    @cached_property
    def is_behind(self) -> bool:
        """Return whether every observation has lag, and more than the records in progress."""
        if not all(self.lag_of(look) for look in self.looks):
            return False
        return self.drain_s > BEHIND_S or self.lag_s > OLD_S

    @cached_property
    def lacks_clients(self) -> bool:
        """Whether clients lease its records, and mostly none of them asks for more."""
        asking = [look.windows.asking for look in self.looks if look.windows.asking is not None]
        return bool(asking) and sum(each > 0 for each in asking) * 2 < len(asking)

    @cached_property
    def unread(self) -> int:
        """Return the number of lagging records that the worker has not received."""
        return sum(each.unread or 0 for each in self.now.partitions)

    # ---- partitions

    def of_partition(
        self, name: TopicPartition, of: Callable[[PartitionSnapshot], float]
    ) -> list[float]:
        """Return a partition's figure in each observation of that partition."""
        seen = (each for look in self.looks for each in look.windows.partitions)
        return [of(each) for each in seen if each.name == name]

    def poison_of(self, partition: PartitionSnapshot) -> FailingRecord | None:
        """Return the record that blocks most others of a partition, None without one.

        It had failed by the first observation and still has not succeeded.
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
        """Return the cluster's median answer time; None if it was not queried."""
        return median(self.round_trips_s) if self.round_trips_s else None

    @cached_property
    def commit_s(self) -> float | None:
        """Return the mean time until a commit's ack; None without commits."""
        before, did = self.first.windows.counters, self.now.counters
        commits = did.commits - before.commits
        return max(0.0, did.commits_s - before.commits_s) / commits if commits > 0 else None
