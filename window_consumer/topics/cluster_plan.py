"""What one cluster needs, in the words of no tool: ``formats`` writes it for some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import define, evolve, field, frozen

from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import NewCopyTopic
from window_consumer.plan.feature import AclRule

TELEMETRY: Final = "telemetry"
"""Named instead of workers for a cluster that only gets the trace and the audit."""


@frozen
class PlannedTopic:
    """A topic for copies, and its purpose."""

    new: NewCopyTopic
    what: str
    is_read: bool = False
    """Whether the worker reads it together with its source, whose partition count it then needs."""
    partitions_now: int | None = None
    """None if it does not exist or was not queried."""

    @property
    def is_too_narrow(self) -> bool:
        """Whether it is a retry topic with fewer partitions than its source."""
        now = self.partitions_now
        return self.is_read and now is not None and now < self.new.partitions


@define
class ClusterPlan:
    """The topics and rights that one cluster needs."""

    bootstrap: str
    """Empty if the configuration does not give it."""
    workers: list[str] = field(factory=list)
    groups: list[str] = field(factory=list)
    topics: list[PlannedTopic] = field(factory=list)
    rights: list[AclRule] = field(factory=list)
    notes: list[str] = field(factory=list)
    """Notes for the reader, a sentence each."""

    @property
    def is_for_telemetry(self) -> bool:
        """Whether no worker reads there: only events and counts are written to it."""
        return self.workers == [TELEMETRY]


def compared(topics: Sequence[PlannedTopic], cluster: Cluster) -> list[PlannedTopic]:
    """Fill in each topic's current partitions; a topic that we may not see counts as missing."""
    names = set(cluster.topic_names())
    there = cluster.topics([each.new.name for each in topics if each.new.name in names])
    return [
        evolve(each, partitions_now=there[each.new.name].partitions)
        if each.new.name in there
        else each
        for each in topics
    ]
