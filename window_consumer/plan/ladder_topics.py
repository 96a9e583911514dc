"""The topics of the ladder: which ones a worker needs, and how to create them.

Used by a start and a redrive, which create them, and by ``topics plan``, which prints them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Self

from attrs import frozen

from window_consumer.config import (
    ENTRY,
    Config,
    TopicNames,
    TopicsConfig,
    WorkerConfig,
    format_duration,
)
from window_consumer.config.sections.worker import OwnTopics
from window_consumer.engine.retry.retry_topics import Level, state_topic
from window_consumer.kafka.cluster.topics import (
    BROKERS_REPLICATION,
    COPY_HEADROOM_BYTES,
    NewCopyTopic,
    Topic,
)

LEVEL_RETENTION_S = 14 * 86400.0
"""How long a retry topic keeps its records, or twice its delay if that is longer."""

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""

_MOST_MESSAGE_BYTES = 2**31 - 1
"""Kafka's upper limit for max.message.bytes."""

SEE_PLAN = "(window-consumer topics plan prints all topics and ACLs that the workers need)"
"""Shown because more than one topic or permission may be missing."""

_MIN_IN_SYNC = "min.insync.replicas"


@frozen
class CopyTopic:
    """A topic for copies that a worker's configuration requires."""

    name: str
    source: str
    level: Level | None = None
    """None for the dead letters and the park topic."""
    is_park: bool = False
    """Where successors of a failed record wait."""

    @property
    def is_read(self) -> bool:
        """Whether the worker reads it together with its source."""
        return self.is_park or self.level is not None

    @property
    def key(self) -> str:
        """The key of its template in the section ``topics``."""
        return "park" if self.is_park else "dlq" if self.level is None else "retry"

    @property
    def kind(self) -> str:
        """Its kind in words."""
        return "dead-letter" if self.key == "dlq" else self.key


@frozen
class Model:
    """The settings that topics for copies inherit from their source topic."""

    partitions: int
    replication: int
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    min_in_sync: str | None = None
    """min.insync.replicas; None leaves it to the broker."""

    @classmethod
    def of(cls, topic: Topic, settings: Mapping[str, str]) -> Self:
        """Return the settings of a topic, with defaults for what the cluster does not report."""
        return cls(
            topic.partitions,
            topic.replication,
            int(settings.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
            settings.get(_MIN_IN_SYNC),
        )

    def _settings(self) -> dict[str, str]:
        return {} if self.min_in_sync is None else {_MIN_IN_SYNC: self.min_in_sync}

    def copies(self, name: str, retention_s: float) -> NewCopyTopic:
        """Return a topic for copies of its records; never with its cleanup policy or retention."""
        most_bytes = min(self.max_message_bytes + COPY_HEADROOM_BYTES, _MOST_MESSAGE_BYTES)
        config = {
            "cleanup.policy": "delete",
            "retention.ms": str(round(retention_s * 1000)),
            "max.message.bytes": str(most_bytes),
        }
        return NewCopyTopic(name, self.partitions, self.replication, config | self._settings())

    def state(self, name: str, retention_s: float | None = None) -> NewCopyTopic:
        """Return a topic that keeps the newest record of each key, in one partition."""
        config = {"cleanup.policy": "compact"}
        if retention_s is not None:
            kept_ms = str(round(retention_s * 1000))
            config = {"cleanup.policy": "compact,delete", "retention.ms": kept_ms}
        return NewCopyTopic(name, 1, self.replication, config | self._settings())


_LADDER: Final = re.compile(r".+\.(dlq|dlq\.state|park|retry\.[^.]+)")
"""Names of the ladder topics of any group, by their usual templates."""


@frozen
class LadderNames:
    """The topics of ladders and of built-in workers, which get no records from others."""

    own: tuple[str, ...]
    """The sources of built-in workers; the names of their other topics begin with these."""
    known: frozenset[str]
    """The ladder topics of the configuration's workers."""

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return those of a configuration."""
        workers = config.workers.values()
        own = [topic for each in workers if each.own_topics for topic in each.topics]
        ladders = {
            name
            for worker in workers
            for topic in worker.topics
            for name in TopicNames(worker, config.topics).ladder(topic)
        }
        return cls(tuple(own), frozenset(ladders))

    def __contains__(self, name: str) -> bool:
        """Return whether a topic is one of them, or named like one of another group."""
        is_own = any(name == each or name.startswith(f"{each}.") for each in self.own)
        return is_own or name in self.known or _LADDER.fullmatch(name) is not None


def levels_of(worker: WorkerConfig) -> tuple[Level, ...]:
    """Return a worker's retry levels, the shortest first."""
    return tuple(Level(format_duration(each), each) for each in worker.retry.levels)


def writes_dead_letters(worker: WorkerConfig, *, may_be_unroutable: bool) -> bool:
    """Return whether a worker needs dead-letter topics.

    ``may_be_unroutable``: there may be records that no handler accepts.
    """
    return (
        worker.retry.when_spent == "dead_letter"
        or (worker.ttl is not None and worker.on_expired == "dead_letter")
        or (may_be_unroutable and worker.otherwise == "dead_letter")
    )


def copy_topics(
    worker: WorkerConfig, topics: TopicsConfig, source: str, *, dead_letters: bool
) -> list[CopyTopic]:
    """Return the topics that copies of a topic's records need, in the order of the ladder."""
    names = TopicNames(worker, topics)
    found = [
        CopyTopic(names.retry(source, level.name), source, level) for level in levels_of(worker)
    ]
    if worker.parks:
        found.append(CopyTopic(names.park(source), source, is_park=True))
    if dead_letters:
        found.append(CopyTopic(names.dlq(source), source))
    return found


def new_copy_topic(wanted: CopyTopic, model: Model, topics: TopicsConfig) -> NewCopyTopic:
    """Return the topic to create for copies."""
    if not wanted.is_read:
        return model.copies(wanted.name, topics.dlq_retention)
    delay_s = 0.0 if wanted.level is None else wanted.level.delay_s
    return model.copies(wanted.name, max(LEVEL_RETENTION_S, 2 * delay_s))


def own_model(own: OwnTopics) -> Model:
    """Return the settings to create a built-in worker's source with."""
    return Model(own.partitions, BROKERS_REPLICATION)


def new_own_source(name: str, own: OwnTopics) -> NewCopyTopic:
    """Return the source to create for a built-in worker."""
    return own_model(own).copies(name, LEVEL_RETENTION_S)


def new_entry(
    worker: WorkerConfig, source: str, model: Model, topics: TopicsConfig
) -> NewCopyTopic:
    """Return the topic to create for redriven dead letters."""
    return model.copies(TopicNames(worker, topics).retry(source, ENTRY), LEVEL_RETENTION_S)


def new_state(group: str, model: Model) -> NewCopyTopic:
    """Return the topic to create for a group's resolved dead letters."""
    return model.state(state_topic(group))
