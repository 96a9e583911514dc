"""The topics of a fake broker: created, deleted, recreated, widened, written to."""

from __future__ import annotations

from itertools import count

from attrs import define, field

from window_consumer.model.errors import BrokerUnavailableError
from window_consumer.model.protocols import Headers, TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.testing.fakes.log import FakeLog, FakeMessage

RECORD_OVERHEAD = 64
"""Bytes per record besides its fields, about as in a Kafka batch with one record."""

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588


@define
class FakeTopic:
    """One topic; a recreated topic is another object with another id."""

    topic_id: str
    logs: list[FakeLog] = field(factory=list)
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES


class FakeTopics:
    """All topics of a fake broker. Owner: one thread."""

    def __init__(self, cluster: str = "") -> None:
        """``cluster`` distinguishes the ids of topics from those of other brokers."""
        self._cluster = cluster
        self.by_name: dict[str, FakeTopic] = {}
        self.leaderless: set[TopicPartition] = set()
        """Partitions that cannot be read or queried at present."""
        self.answering = True
        """Whether queries about topics or offsets are answered."""
        self._ids = count(1)

    def create(
        self, name: str, partitions: int, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    ) -> FakeTopic:
        """Create a topic; ``ValueError`` if there is one of this name."""
        if name in self.by_name:
            msg = f"the topic {name} already exists"
            raise ValueError(msg)
        topic = FakeTopic(
            f"id{self._cluster}-{next(self._ids)}", max_message_bytes=max_message_bytes
        )
        self.by_name[name] = topic
        self.widen(name, partitions)
        return topic

    def widen(self, name: str, partitions: int) -> None:
        """Widen a topic to ``partitions``; never reduces them."""
        logs = self.by_name[name].logs
        for partition in range(len(logs), partitions):
            logs.append(FakeLog(TopicPartition(name, partition)))

    def delete(self, name: str) -> None:
        """Delete a topic with all its records."""
        del self.by_name[name]

    def log(self, name: TopicPartition) -> FakeLog | None:
        """Return a partition's log, None if there is no such partition."""
        topic = self.by_name.get(name.topic)
        if topic is None or name.partition >= len(topic.logs):
            return None
        return topic.logs[name.partition]

    def partitions(self, name: str) -> int:
        """Return how many partitions a topic has, 0 if there is no such topic."""
        topic = self.by_name.get(name)
        return 0 if topic is None else len(topic.logs)

    def facts(self, name: str) -> TopicFacts | None:
        """Return the cluster's facts about a topic, None if there is none."""
        topic = self.by_name.get(name)
        return None if topic is None else TopicFacts(len(topic.logs), topic.topic_id)

    def write(
        self,
        name: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> FakeMessage:
        """Append a record; ``KeyError`` if there is no such partition."""
        log = self.log(name)
        if log is None:
            raise KeyError(str(name))
        return log.append(key, value, headers, timestamp_ms)

    def ask(self, what: str) -> None:
        """Raise BrokerUnavailableError while the broker does not answer."""
        if not self.answering:
            raise BrokerUnavailableError(f"{what}: the broker does not answer")


def size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return roughly how many bytes a record needs in a log."""
    fields = len(key or b"") + len(value or b"")
    return RECORD_OVERHEAD + fields + sum(len(n) + len(v or b"") + 2 for n, v in headers)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Java's producers choose for a key (murmur2)."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    state = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for index in range(0, whole, 4):
        word = int.from_bytes(key[index : index + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        state = state * factor & mask ^ word
    if len(key) > whole:
        state = (state ^ int.from_bytes(key[whole:], "little")) * factor & mask
    state = (state ^ state >> 13) * factor & mask
    return ((state ^ state >> 15) & 0x7FFFFFFF) % partitions
