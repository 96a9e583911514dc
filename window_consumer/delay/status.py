"""The records waiting in a delay service's topics, according to Kafka: the service need not run."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice, starmap
from typing import Any

from attrs import frozen

from window_consumer.delay.config import DelayConfig
from window_consumer.engine.guards.backpressure import WAITING_CELLS
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.groups import PartitionProgress
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model import headers as names
from window_consumer.model.header_values import count
from window_consumer.model.offset_ranges import Ranges, Span
from window_consumer.model.record import TopicPartition
from window_consumer.plan.ladder_topics import levels_of


@frozen
class TopicStatus:
    """The records waiting in the service's own topic or a level's topic."""

    topic: str
    level: str | None
    """None for the service's own topic."""
    partitions: int
    """0 if the topic does not exist."""
    waiting: int
    """Unfinished records; gaps in the log count, too."""
    next_due_ms: int | None
    """When the first of them leaves, in ms since 1970. None if no record waits, and for the
    service's own topic, which is not ordered by time."""
    late_p99_s: float | None = None
    """How late overdue records are, as the 99th percentile in the worst partition; 0 if none is
    overdue. None for the service's own topic."""
    paused_partitions: int | None = None
    """How many partitions have so many waiting records that a member fetches no more of them. None
    for the service's own topic."""


@frozen
class ServiceStatus:
    """The records waiting in all topics of a service."""

    group: str
    members: int | None
    """None if the cluster does not report it."""
    now_ms: int
    topics: tuple[TopicStatus, ...]

    @property
    def waiting(self) -> int:
        """The number of records waiting in all topics."""
        return sum(each.waiting for each in self.topics)

    def late_s(self, topic: TopicStatus) -> float:
        """Return how long a topic's first record is overdue, in seconds; 0 if it is not."""
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
                    "late_p99_s": each.late_p99_s,
                    "paused_partitions": each.paused_partitions,
                }
                for each in self.topics
            ],
        }


def status_of(
    section: DelayConfig, cluster: Cluster, reader: TopicReader, now_ms: int
) -> ServiceStatus:
    """Query the cluster; raise a WindowConsumerError if it does not answer."""
    worker = section.worker
    group = cluster.group(worker.group)
    own = worker.own_topics
    assert own is not None
    levels = {own.retry.format(delay=each.name): each for each in levels_of(worker)}
    progress = {
        topic: cluster.progress(
            worker.group, topic, until_ms=now_ms - round(1000 * level.delay_s) + 1
        )
        for topic, level in levels.items()
    }
    waiting = {
        name: _Waiting.of(each) for found in progress.values() for name, each in found.items()
    }
    due = _due(reader, {name: each.first for name, each in waiting.items() if each.open})
    late = _due(reader, {name: each.p99 for name, each in waiting.items() if each.overdue})
    most = WAITING_CELLS * worker.window.cell_records

    def status(topic: str, level: Level) -> TopicStatus:
        found = [waiting[name] for name in progress[topic]]
        late_ms = [now_ms - late[name] for name in progress[topic] if name in late]
        return TopicStatus(
            topic,
            level.name,
            len(found),
            sum(each.count for each in found),
            min((due[name] for name in progress[topic] if name in due), default=None),
            max(0, 0, *late_ms) / 1000,
            sum(each.count >= most for each in found),
        )

    rest = starmap(status, levels.items())
    source = cluster.progress(worker.group, section.topic)
    count = sum(_Waiting.of(each).count for each in source.values())
    first = TopicStatus(section.topic, None, len(source), count, None)
    return ServiceStatus(worker.group, group.members, now_ms, (first, *rest))


@frozen
class _Waiting:
    """The unfinished records of a partition."""

    open: Ranges
    """Their offsets, ends excluded; gaps in the log count, too."""
    overdue: int
    """How many are overdue: the first ones, because a level is ordered by time."""
    in_wheel: int
    """How many of them wait in a wheel."""

    @classmethod
    def of(cls, progress: PartitionProgress) -> _Waiting:
        found = progress.unfinished
        overdue = sum(max(0, min(stop, progress.old) - first) for first, stop in found)
        return cls(found, overdue, progress.in_wheel)

    @property
    def count(self) -> int:
        return self.in_wheel + sum(stop - first for first, stop in self.open)

    @property
    def first(self) -> Span:
        """The first of them."""
        return _span(self.open[0][0])

    @property
    def p99(self) -> Span:
        """The 99th percentile of the overdue records."""
        offsets = chain.from_iterable(starmap(range, self.open))
        return _span(next(islice(offsets, self.overdue // 100, None)))


def _span(offset: int) -> Span:
    return Span(offset, offset + 1)


def _due(reader: TopicReader, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, int]:
    """Return when these records leave, in ms since 1970."""
    found = {}
    for message in chain.from_iterable(reader.read(spans)):
        due_ms = count(dict(message.headers() or ()).get(names.NOT_BEFORE))
        if due_ms is not None:
            found[TopicPartition(message.topic(), message.partition())] = due_ms
    return found
