"""A Cluster for preflight checks whose answers come from a fake broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from window_consumer.config.names import wrong_name
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import ConsumerGroup, NewCopyTopic, Topic
from window_consumer.model.errors import RunError
from window_consumer.model.record import TopicPartition
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.topics import DEFAULT_MAX_MESSAGE_BYTES

_MAX_MESSAGE_BYTES = "max.message.bytes"


class FakeCluster(Cluster):
    """Answers at once, permits everything, creates the topics that are requested."""

    def __init__(self, broker: FakeBroker):  # it creates no client
        self.bootstrap = "in-memory"
        self.oauth_token = None
        self._broker = broker

    def wait_until_there(self, timeout_s: float, on_wait: Callable[[str, float], None]) -> None:
        """Return at once."""

    def has_consumer_protocol(self) -> bool:
        """Return that the brokers have the consumer group protocol."""
        return True

    def topic_names(self, timeout_s: float = 0.0) -> list[str]:  # noqa: ARG002 - answers at once
        """Return the names of all topics."""
        return sorted(self._broker.topics.by_name)

    def topics(
        self,
        names: Sequence[str],
        timeout_s: float = 0.0,  # noqa: ARG002 - answers at once
        deadline_s: float = 0.0,  # noqa: ARG002 - answers at once
    ) -> dict[str, Topic]:
        """Describe topics; those that do not exist are left out."""
        there = self._broker.topics.by_name
        return {
            name: Topic(name, len(there[name].logs), 1, there[name].topic_id, None)
            for name in names
            if name in there
        }

    def log_ends(
        self,
        names: Sequence[TopicPartition],
        timeout_s: float = 0.0,  # noqa: ARG002 - answers at once
        *,
        committed: bool = False,  # noqa: ARG002 - there are no transactions
    ) -> dict[TopicPartition, int]:
        """Return the ends (exclusive) of logs."""
        topics = self._broker.topics.by_name
        return {name: topics[name.topic].logs[name.partition].end for name in names}

    def topic_config(self, name: str, timeout_s: float = 0.0) -> dict[str, str]:  # noqa: ARG002 - answers at once
        """Return the one setting that a fake topic has."""
        return {_MAX_MESSAGE_BYTES: str(self._broker.topics.by_name[name].max_message_bytes)}

    def create(
        self,
        topics: Iterable[NewCopyTopic],
        timeout_s: float = 0.0,  # noqa: ARG002 - answers at once
        *,
        validate_only: bool = False,
    ) -> None:
        """Create missing topics; raise RunError for a name that Kafka refuses."""
        for topic in topics:
            if (wrong := wrong_name(topic.name)) is not None:
                raise RunError(f"creating topic {topic.name}: its name {wrong}")
            if not validate_only and topic.name not in self._broker.topics.by_name:
                most = int(topic.config.get(_MAX_MESSAGE_BYTES, DEFAULT_MAX_MESSAGE_BYTES))
                self._broker.create_topic(topic.name, topic.partitions, most)

    def widen(self, name: str, partitions: int, timeout_s: float = 0.0) -> None:  # noqa: ARG002 - answers at once
        """Widen a topic to ``partitions``."""
        self._broker.add_partitions(name, partitions)

    def backlog(self, group: str, topic: str, timeout_s: float = 0.0) -> int:  # noqa: ARG002 - answers at once
        """Return how many offsets of a topic a group has not committed."""
        committed = self._broker.group(group).committed
        logs = self._broker.topics.by_name[topic].logs
        return sum(log.end - max(log.start, committed(log.name).next_offset or 0) for log in logs)

    def group(self, group: str, timeout_s: float = 0.0) -> ConsumerGroup:  # noqa: ARG002 - answers at once
        """Describe a consumer group."""
        return ConsumerGroup(len(self._broker.group(group).members), None)

    def broker_config(self, timeout_s: float = 0.0) -> dict[str, str]:  # noqa: ARG002 - answers at once
        """Return nothing: a fake broker has no settings."""
        return {}
