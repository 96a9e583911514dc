"""Topics and groups as the cluster describes them, and topics that are to be made."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from attrs import frozen
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import NewTopic, TopicDescription

_REBALANCING = frozenset(
    {ConsumerGroupState.PREPARING_REBALANCING, ConsumerGroupState.COMPLETING_REBALANCING}
)
"""The client has no names for the states of the consumer protocol that stand for the same."""

COPY_HEADROOM_BYTES = 64 * 1024
"""How much larger than its source's records a copy may be: our headers."""


@frozen
class Topic:
    """A topic as the cluster describes it."""

    name: str
    partitions: int
    replication: int
    topic_id: str | None
    operations: frozenset[str] | None
    """What we may do with it (READ, WRITE, DESCRIBE ...); None where the cluster does not tell."""

    @classmethod
    def described(cls, description: TopicDescription) -> Topic:
        """Return it as the cluster's answer says."""
        return cls(
            name=description.name,
            partitions=len(description.partitions),
            replication=len(description.partitions[0].replicas),
            topic_id=str(description.topic_id),
            operations=_operations(description.authorized_operations),
        )


@frozen
class ConsumerGroup:
    """A consumer group; None stands for what the cluster does not tell."""

    members: int | None
    operations: frozenset[str] | None
    is_rebalancing: bool = False
    """Its members have not settled who reads what."""

    @classmethod
    def described(cls, description: Any) -> ConsumerGroup:
        """Return it as the cluster's answer says."""
        return cls(
            len(description.members),
            _operations(description.authorized_operations),
            description.state in _REBALANCING,
        )


@frozen
class NewCopyTopic:
    """A topic for copies that is to be made."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]

    def command(self, bootstrap: str) -> str:
        """Return the shell command that makes the topic with Kafka's own tools."""
        return shlex.join(self.words(bootstrap))

    def words(self, bootstrap: str) -> list[str]:
        """Return the words of that command, unquoted."""
        settings = [
            word for key, value in self.config.items() for word in ("--config", f"{key}={value}")
        ]
        return [
            *("kafka-topics.sh", "--bootstrap-server", bootstrap, "--create", "--topic", self.name),
            *("--partitions", str(self.partitions)),
            *("--replication-factor", str(self.replication)),
            *settings,
        ]

    def request(self) -> NewTopic:
        """Return it as the client wants it."""
        return NewTopic(
            self.name,
            num_partitions=self.partitions,
            replication_factor=self.replication,
            config=dict(self.config),
        )


def _operations(operations: Iterable[Enum] | None) -> frozenset[str] | None:
    return None if operations is None else frozenset(operation.name for operation in operations)
