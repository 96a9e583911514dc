"""Topics of the ladder that are read although the configuration does not name them.

These are the topic for redriven records, a park topic that is no longer written to, and levels that
were removed from the configuration or renamed, until the group has read their remaining records.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from attrs import frozen

from window_consumer.config import ENTRY, TopicNames
from window_consumer.config.units import UnitError, parse_duration
from window_consumer.engine.retry.retry_topics import Level, RetryTopicLevel, is_read_on
from window_consumer.kafka.cluster import Cluster
from window_consumer.model.errors import NotPermittedError, RunError
from window_consumer.plan.app_plan import AppPlan, PlannedWorker


@frozen
class OrphanTopic:
    """A retry topic without a configured level."""

    name: str
    retry_level: RetryTopicLevel
    backlog: int | None
    """The number of its records that the group has not finished; None if the cluster does not
    report it."""

    @property
    def is_read(self) -> bool:
        """Whether the worker must read it."""
        return is_read_on(self.retry_level, self.backlog)


def leftovers(
    plan: AppPlan,
    worker: PlannedWorker,
    cluster: Cluster,
    sources: Sequence[str],
    names: Sequence[str],
) -> list[OrphanTopic]:
    """Find orphan topics among the names of the cluster's topics."""
    known = {level.name for level in worker.retry.levels}
    found = []
    for source in sources:
        pattern = _pattern(plan, worker, source)
        for name in names:
            match = pattern.fullmatch(name)
            retry_level = None if match is None else _retry_level(source, match["delay"], known)
            if retry_level is None:
                continue
            backlog = None if retry_level.level is None else _backlog(cluster, worker, name)
            found.append(OrphanTopic(name, retry_level, backlog))
        park = TopicNames(worker.config, plan.config.topics).park(source)
        if park in names and not worker.config.parks:
            backlog = _backlog(cluster, worker, park)
            found.append(OrphanTopic(park, RetryTopicLevel(source, is_copy=True), backlog))
    return found


def _pattern(plan: AppPlan, worker: PlannedWorker, source: str) -> re.Pattern[str]:
    name = TopicNames(worker.config, plan.config.topics).retry(source, "{delay}")
    return re.compile(r"(?P<delay>[a-z0-9.]+)".join(map(re.escape, name.split("{delay}", 1))))


def _retry_level(source: str, delay: str, known: Container[str]) -> RetryTopicLevel | None:
    if delay == ENTRY:
        return RetryTopicLevel(source, None, is_copy=True)
    if delay in known:
        return None
    try:
        return RetryTopicLevel(source, Level(delay, parse_duration(delay)), is_copy=True)
    except UnitError:
        return None  # a topic of another application


def _backlog(cluster: Cluster, worker: PlannedWorker, name: str) -> int | None:
    try:
        return cluster.backlog(worker.config.group, name)
    except (NotPermittedError, RunError):
        return None
