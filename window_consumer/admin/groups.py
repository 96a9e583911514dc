"""The status of each worker's group according to Kafka; works without running workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from window_consumer.admin.board import now_ms
from window_consumer.config import ENTRY, Config, TopicNames, WorkerConfig
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.groups import PartitionProgress
from window_consumer.kafka.cluster.topics import ListedMember
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.record import TopicPartition
from window_consumer.plan.clients import Clients
from window_consumer.plan.feature import PageContext
from window_consumer.plan.ladder_topics import CopyTopic, copy_topics
from window_consumer.plan.topics.patterns import matching_topics

_DEADLINE_S: Final = 10.0
"""How long a broker may take; short, because a person waits."""


@frozen
class GroupTopic:
    """A topic of a worker, and its purpose."""

    name: str
    kind: str
    """source, redriven, retry, park or dead-letter."""
    source: str
    level: str | None = None


class GroupStatuses:
    """Queries the clusters of a configuration. Owner: one thread at a time."""

    def __init__(self, context: PageContext, *, deadline_s: float = _DEADLINE_S):
        self._context = context
        self._deadline_s = deadline_s

    def all(self) -> dict[str, Any]:
        """Return the status of each worker as plain values; ``error`` without an answer."""
        workers = self._context.config.workers.values()
        return {"time": now_ms(), "workers": [self._status(each) for each in workers]}

    def _status(self, worker: WorkerConfig) -> dict[str, Any]:
        status: dict[str, Any] = {
            "name": worker.name,
            "group": None if worker.is_broadcast else worker.group,
            "error": None,
        }
        if worker.is_broadcast:
            return status
        token, deadline_s = self._context.oauth_token, self._deadline_s
        try:
            cluster = Clients.connect(self._context.loaded, worker, token, deadline_s).cluster
            return status | self._asked(worker, cluster)
        except WindowConsumerError as error:
            return status | {"error": self._context.mask(str(error))}

    def _asked(self, worker: WorkerConfig, cluster: Cluster) -> dict[str, Any]:
        group = cluster.group(worker.group, self._deadline_s)
        names = cluster.topic_names(self._deadline_s)
        topics = []
        for topic in topics_of(worker, self._context.config, names):
            progress = cluster.progress(worker.group, topic.name, self._deadline_s)
            topics.append(_topic(topic, progress, group.owners))
        return {
            "state": group.state,
            "protocol": group.protocol,
            "assignor": group.assignor,
            "members": [
                {
                    "client_id": each.client_id,
                    "host": each.host,
                    "partitions": sum(owner == each for owner in group.owners.values()),
                }
                for each in group.listed
            ],
            "topics": topics,
        }


def topics_of(worker: WorkerConfig, config: Config, names: Sequence[str]) -> Iterator[GroupTopic]:
    """Yield a worker's existing topics: each source, its retry and park topics, its dead letters.

    ``names`` are all topics of the cluster.
    """
    there = set(names)
    sources = worker.topics or matching_topics(config, worker, names)
    known = set()
    for source in sources:
        copies = copy_topics(worker, config.topics, source, dead_letters=True)
        found = [
            GroupTopic(source, "source", source),
            GroupTopic(TopicNames(worker, config.topics).retry(source, ENTRY), "redriven", source),
            *(GroupTopic(each.name, each.kind, source, _level(each)) for each in copies),
        ]
        for each in found:
            known.add(each.name)
            if each.name in there:
                yield each
    for name in names:  # levels that were removed from the configuration
        if name not in known and TopicNames(worker, config.topics).is_read(name):
            yield GroupTopic(name, "retry", "", name.rpartition(".")[2])


def _level(copies: CopyTopic) -> str | None:
    return None if copies.level is None else copies.level.name


def _topic(
    topic: GroupTopic,
    progress: Mapping[TopicPartition, PartitionProgress],
    owners: Mapping[TopicPartition, ListedMember],
) -> dict[str, Any]:
    is_read = topic.kind != "dead-letter"
    partitions = []
    for name, each in progress.items():
        owner = owners.get(name)
        unread = sum(stop - first for first, stop in each.unfinished)
        partitions.append(
            {
                "partition": name.partition,
                "start": each.start,
                "end": each.end,
                "committed": each.committed if is_read and each.committed >= 0 else None,
                "waiting": each.in_wheel + unread if is_read else each.end - each.start,
                "member": None if owner is None else str(owner),
            }
        )
    return {
        "topic": topic.name,
        "kind": topic.kind,
        "source": topic.source,
        "level": topic.level,
        "waiting": sum(each["waiting"] for each in partitions),
        "partitions": partitions,
    }
