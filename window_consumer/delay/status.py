"""What waits in the topics of a delay service, as Kafka knows it: the service need not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from attrs import frozen

from window_consumer.delay.config import DelayConfig
from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.groups import PartitionProgress
from window_consumer.kafka.topic_reader import Span, TopicReader
from window_consumer.model import headers as names
from window_consumer.model.header_values import count
from window_consumer.model.record import TopicPartition
from window_consumer.plan.ladder_topics import levels_of


@frozen
class TopicStatus:
    """What waits in the service's own topic, or in that of a level."""

    topic: str
    level: str | None
    """None for the service's own topic."""
    partitions: int
    """0 if the topic does not exist."""
    waiting: int
    """Records that are not finished; holes in the log count, too."""
    next_due_ms: int | None
    """When the first of them goes on, in ms since 1970. None if nothing waits, and for the
    service's own topic, which is not ordered by time."""


@frozen
class ServiceStatus:
    """What waits in all topics of a service."""

    group: str
    members: int | None
    """None if the cluster does not report it."""
    now_ms: int
    topics: tuple[TopicStatus, ...]

    @property
    def waiting(self) -> int:
        """The records that wait in all topics."""
        return sum(each.waiting for each in self.topics)

    def late_s(self, topic: TopicStatus) -> float:
        """Return how long the first record of a topic is overdue, in seconds; 0 if it is not."""
        due_ms = self.now_ms if topic.next_due_ms is None else topic.next_due_ms
        return max(0, self.now_ms - due_ms) / 1000

    def as_json(self) -> dict[str, Any]:
        """Return plain values; the names of the fields are stable."""
        return {
            "group": self.group,
            "members": self.members,
            "time_ms": self.now_ms,
            "waiting": self.waiting,
            "topics": [
                {
                    "topic": each.topic,
                    "level": each.level,
                    "partitions": each.partitions,
                    "waiting": each.waiting,
                    "next_due_ms": each.next_due_ms,
                    "late_s": self.late_s(each),
                }
                for each in self.topics
            ],
        }


def status_of(
    section: DelayConfig, cluster: Cluster, reader: TopicReader, now_ms: int
) -> ServiceStatus:
    """Ask the cluster what waits; raises a WindowConsumerError without an answer."""
    worker = section.worker
    group = cluster.group(worker.group)
    levels: dict[str, str | None] = {section.topic: None}
    for level in levels_of(worker):
        assert worker.own_topics is not None
        levels[worker.own_topics.retry.format(delay=level.name)] = level.name
    progress = {topic: cluster.progress(worker.group, topic) for topic in levels}
    ordered = [progress[topic] for topic, level in levels.items() if level is not None]
    due = _due(reader, dict(chain.from_iterable(map(_first_open, ordered))))
    topics = [
        TopicStatus(
            topic,
            level,
            len(progress[topic]),
            sum(map(_waiting, progress[topic].values())),
            min((due[name] for name in progress[topic] if name in due), default=None),
        )
        for topic, level in levels.items()
    ]
    return ServiceStatus(worker.group, group.members, now_ms, tuple(topics))


def _begin(progress: PartitionProgress) -> int:
    return max(progress.committed, progress.start)


def _waiting(progress: PartitionProgress) -> int:
    note = decode(progress.metadata or "")
    begin = _begin(progress)
    finished: Sequence[range] = ()
    if note is not None and note.next_offset == begin:
        finished = note.finished
    return max(0, progress.end - begin - sum(map(len, finished)))


def _first_open(
    progress: Mapping[TopicPartition, PartitionProgress],
) -> Iterator[tuple[TopicPartition, Span]]:
    """Yield the first open record of each partition in which records wait."""
    for name, each in progress.items():
        if _waiting(each):
            yield name, Span(_begin(each), _begin(each) + 1)


def _due(reader: TopicReader, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, int]:
    """Return when these records go on, in ms since 1970."""
    found = {}
    for message in chain.from_iterable(reader.read(spans)):
        due_ms = count(dict(message.headers() or ()).get(names.NOT_BEFORE))
        if due_ms is not None:
            found[TopicPartition(message.topic(), message.partition())] = due_ms
    return found
