"""Topics and groups as the cluster describes them, and topics to create."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from attrs import field, frozen
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import NewTopic, TopicDescription

from window_consumer.model.record import TopicPartition

_REBALANCING = frozenset(
    {ConsumerGroupState.PREPARING_REBALANCING, ConsumerGroupState.COMPLETING_REBALANCING}
)
"""The client has no names for the equivalent states of the consumer protocol."""

COPY_HEADROOM_BYTES = 64 * 1024
"""How much larger than its source record a copy may be, for our headers."""

BROKERS_REPLICATION = -1
"""The replication of a new topic that the brokers choose, see default.replication.factor."""


@frozen
class Topic:
    """A topic as the cluster describes it."""

    name: str
    partitions: int
    replication: int
    topic_id: str | None
    operations: frozenset[str] | None
    """Our permitted operations (READ, WRITE, DESCRIBE ...); None if the cluster reports none.
    """

    @classmethod
    def described(cls, description: TopicDescription) -> Topic:
        """Return the topic from the cluster's answer."""
        return cls(
            name=description.name,
            partitions=len(description.partitions),
            replication=len(description.partitions[0].replicas),
            topic_id=str(description.topic_id),
            operations=_operations(description.authorized_operations),
        )


@frozen(order=True)
class ListedMember:
    """A member of a consumer group, as the cluster lists it."""

    client_id: str
    host: str

    def __str__(self) -> str:
        """Name the member in messages."""
        return f"{self.client_id} on {self.host}"


@frozen
class ConsumerGroup:
    """A consumer group; None means that the cluster does not report a value."""

    members: int | None
    operations: frozenset[str] | None
    is_rebalancing: bool = False
    """The members have not agreed on who reads what."""
    listed: tuple[ListedMember, ...] = ()
    """The members, sorted; none if the cluster does not list them."""
    state: str = ""
    """Kafka's word, such as Stable; empty if the cluster does not report it."""
    protocol: str = ""
    """Classic or Consumer, likewise."""
    assignor: str = ""
    owners: Mapping[TopicPartition, ListedMember] = field(factory=dict)
    """Who reads each assigned partition."""

    @classmethod
    def described(cls, description: Any) -> ConsumerGroup:
        """Return the group from the cluster's answer."""
        return cls(
            len(description.members),
            _operations(description.authorized_operations),
            description.state in _REBALANCING,
            tuple(sorted(ListedMember(each.client_id, each.host) for each in description.members)),
            _word(description.state),
            _word(description.type),
            description.partition_assignor or "",
            {
                TopicPartition(place.topic, place.partition): ListedMember(
                    each.client_id, each.host
                )
                for each in description.members
                for place in (each.assignment.topic_partitions if each.assignment else ())
            },
        )


def _word(member: Enum | None) -> str:
    return "" if member is None else member.name.replace("_", " ").capitalize()


@frozen
class NewCopyTopic:
    """A topic for copies, to be created."""

    name: str
    partitions: int
    replication: int
    """BROKERS_REPLICATION leaves it to the brokers."""
    config: Mapping[str, str]

    def command(self, bootstrap: str) -> str:
        """Return the shell command that creates the topic with Kafka's own tools."""
        return shlex.join(self.words(bootstrap))

    def words(self, bootstrap: str) -> list[str]:
        """Return the words of that command, unquoted."""
        settings = [
            word for key, value in self.config.items() for word in ("--config", f"{key}={value}")
        ]
        replication = ["--replication-factor", str(self.replication)]
        if self.replication == BROKERS_REPLICATION:
            replication = []
        return [
            *("kafka-topics.sh", "--bootstrap-server", bootstrap, "--create", "--topic", self.name),
            *("--partitions", str(self.partitions)),
            *replication,
            *settings,
        ]

    def request(self) -> NewTopic:
        """Return the request in the client's type."""
        return NewTopic(
            self.name,
            num_partitions=self.partitions,
            replication_factor=self.replication,
            config=dict(self.config),
        )


def _operations(operations: Iterable[Enum] | None) -> frozenset[str] | None:
    return None if operations is None else frozenset(operation.name for operation in operations)
