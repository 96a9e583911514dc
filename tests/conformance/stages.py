"""Where the conformance suite runs: the fake broker, a real Kafka, and the embedded one.

A stage makes topics, lets things happen to them, and hands out the Sources and Sinks under test.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import reading, topics
from tests.raw_records import write_raw
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.settings import ConsumerNeeds, admin_settings
from window_consumer.kafka.sink import KafkaSink
from window_consumer.kafka.source import KafkaSource
from window_consumer.model.headers import LostHeaders
from window_consumer.model.protocols import Headers, Sink, Source
from window_consumer.model.record import Message, TopicPartition
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.source import FakeSource
from window_consumer.testing.real_kafka import RealKafka

DEADLINE_S = 60.0
"""How long a test waits for an event; usually it takes milliseconds."""

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}

_LOG = ClientLog(logging.getLogger("window_consumer.conformance"))

Name = Callable[[str], str]


class Stage(ABC):
    """One kind of broker. Everything that a test creates has a unique name."""

    kind: str
    incremental = True
    """In a rebalance members keep the partitions that they do not lose."""
    for_evicting: Mapping[str, Any] = {}
    """Settings of a member that is evicted soon after its last poll."""

    def __init__(self, unique_name: Name):
        self.unique_name = unique_name
        self._sources: list[Source] = []

    # ---- topics

    @abstractmethod
    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic and return its name."""

    @abstractmethod
    def write(
        self,
        topic: str,
        *values: bytes | None,
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        """Write records and return when the broker has them."""

    @abstractmethod
    def write_unreadable(self, topic: str, value: bytes) -> None:
        """Write a record with a header whose name is not UTF-8."""

    @abstractmethod
    def read(self, topic: str) -> list[Message]:
        """Return all records, by partition and offset."""

    @abstractmethod
    def delete_before(self, name: TopicPartition, offset: int) -> None:
        """Delete the records below an offset."""

    @abstractmethod
    def remake(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic and recreate it at once."""

    # ---- parts under test

    def source(self, group: str, **settings: Any) -> Source:
        """Return a member-to-be, closed at the end of the test."""
        source = self._make_source(group, settings)
        self._sources.append(source)
        return source

    def source_of_all(self, **settings: Any) -> Source:
        """Return a reader of all partitions, without a group; closed at the end of the test."""
        source = self._make_source(None, settings)
        self._sources.append(source)
        return source

    @abstractmethod
    def _make_source(self, group: str | None, settings: Mapping[str, Any]) -> Source: ...

    @abstractmethod
    def sink(self, **settings: Any) -> Sink:
        """Return a writer of copies."""

    def close(self) -> None:
        """Close everything that the test has left open."""
        for source in self._sources:
            source.close(DEADLINE_S)


class FakeStage(Stage):
    """The fake broker."""

    kind = "fake"

    def __init__(self, unique_name: Name, *, incremental: bool = True):
        super().__init__(unique_name)
        self.incremental = incremental
        self.broker = FakeBroker()

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = self.unique_name("topic")
        topic = self.broker.create_topic(name, partitions)
        if config and "max.message.bytes" in config:
            topic.max_message_bytes = int(config["max.message.bytes"])
        return name

    def write(
        self,
        topic: str,
        *values: bytes | None,
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        for value in values:
            self.broker.produce(topic, partition, key, value, headers, timestamp_ms=1)

    def write_unreadable(self, topic: str, value: bytes) -> None:
        self.broker.produce(topic, 0, None, value, LostHeaders.new(), timestamp_ms=1)

    def read(self, topic: str) -> list[Message]:
        logs = self.broker.topics.by_name[topic].logs
        return [message for log in logs for message in log.messages]

    def delete_before(self, name: TopicPartition, offset: int) -> None:
        self.broker.log(*name).delete_before(offset)

    def add_partitions(self, topic: str, partitions: int) -> None:
        self.broker.add_partitions(topic, partitions)

    def delete(self, topic: str) -> None:
        self.broker.delete_topic(topic)

    def remake(self, topic: str, partitions: int = 1) -> None:
        self.broker.remake_topic(topic, partitions)

    def transaction(self, topic: str, *values: bytes, commit: bool = True) -> None:
        if commit:
            self.write(topic, *values)
        else:
            self.broker.log(topic).skip(len(values))
        self.broker.log(topic).skip(1)

    def compacted(self) -> str:
        topic = self.topic()
        for value in (b"0", b"1", b"2"):
            self.write(topic, value, key=b"same")
        self.write(topic, b"last", key=b"other")
        self.broker.compact(topic, 0, [0, 1])
        return topic

    @contextmanager
    def silence(self) -> Iterator[None]:
        self.broker.topics.answering = False
        yield
        self.broker.topics.answering = True

    def _make_source(self, group: str | None, settings: Mapping[str, Any]) -> Source:
        del settings
        if group is None:
            return self.broker.source_of_all()
        return self.broker.source(group, incremental=self.incremental)

    def evict(self, source: Source, turn_others: Callable[[], object]) -> None:
        assert isinstance(source, FakeSource)
        del turn_others
        self.broker.evict(source)

    def sink(self, **settings: Any) -> Sink:
        del settings
        return self.broker.sink()


class ClientStage(Stage):
    """A broker that is reached through Kafka's client."""

    def __init__(self, unique_name: Name, client: Mapping[str, Any]):
        super().__init__(unique_name)
        self.client = {"log_level": 0, **client}
        bare = {"bootstrap.servers": client["bootstrap.servers"], "log_level": 0}
        self.bare = bare
        self._cluster = Cluster(admin_settings(bare, "conformance"), _LOG)
        self._producer = Producer(
            {**bare, "linger.ms": 0, "acks": "all", "message.max.bytes": 10_000_000}
        )

    def write(
        self,
        topic: str,
        *values: bytes | None,
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        failures = []
        for value in values:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                headers=list(headers),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert self._producer.flush(DEADLINE_S) == 0
        assert not failures

    def write_unreadable(self, topic: str, value: bytes) -> None:
        write_raw(self.bare["bootstrap.servers"], topic, value)

    def read(self, topic: str) -> list[Message]:
        return reading.read_all(self.bare, topic)

    def _make_source(self, group: str | None, settings: Mapping[str, Any]) -> Source:
        needs = ConsumerNeeds(group, "conformance", ordered=True, memory=2**26)
        return KafkaSource({**self.client, **settings}, needs, self._cluster, _LOG)

    def sink(self, **settings: Any) -> Sink:
        return KafkaSink({**self.bare, **settings}, "conformance", _LOG)

    def close(self) -> None:
        super().close()
        self._producer.close()


class EmbeddedStage(ClientStage):
    """The embedded broker."""

    kind = "embedded"

    def __init__(self, unique_name: Name):
        self.broker = EmbeddedBroker()
        super().__init__(unique_name, self.broker.client_settings())

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        del config
        name = self.unique_name("topic")
        self.broker.create_topic(name, partitions)
        return name

    def delete_before(self, name: TopicPartition, offset: int) -> None:
        self.broker.delete_records(*name, before=offset)

    def remake(self, topic: str, partitions: int = 1) -> None:
        self.broker.delete_topic(topic)
        self.broker.create_topic(topic, partitions)

    @contextmanager
    def silence(self) -> Iterator[None]:
        self.broker.broker_down()
        yield
        self.broker.broker_up()

    def close(self) -> None:
        super().close()
        self.broker.close()


class KafkaStage(ClientStage):
    """A real Kafka, with one of its ways to share partitions."""

    kind = "kafka"

    def __init__(self, unique_name: Name, kafka: RealKafka, assignor: str = "consumer"):
        protocol = (
            {"group.protocol": "consumer"}
            if assignor == "consumer"
            else {
                "group.protocol": "classic",
                "partition.assignment.strategy": assignor,
                "heartbeat.interval.ms": 100,
            }
        )
        quick = {
            "bootstrap.servers": kafka.bootstrap,
            "fetch.wait.max.ms": 10,
            "topic.metadata.refresh.interval.ms": 200,
        }
        super().__init__(unique_name, {**quick, **protocol})
        self.incremental = assignor != "range"
        self.for_evicting = {"max.poll.interval.ms": 3_000}
        if assignor != "consumer":
            self.for_evicting = {**self.for_evicting, "session.timeout.ms": 2_900}
        self._admin = AdminClient(self.bare)

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = self.unique_name("topic")
        topics.make(self._admin, NewTopic(name, partitions, 1, config=dict(config or {})))
        return name

    def delete_before(self, name: TopicPartition, offset: int) -> None:
        wanted = ClientPartition(*name, offset)
        (answer,) = self._admin.delete_records([wanted]).values()
        answer.result(DEADLINE_S)

    def add_partitions(self, topic: str, partitions: int) -> None:
        topics.widen(self._admin, topic, partitions)

    def delete(self, topic: str) -> None:
        topics.delete(self._admin, topic)

    def remake(self, topic: str, partitions: int = 1) -> None:
        topics.make_anew(self._admin, NewTopic(topic, partitions, 1))

    def transaction(self, topic: str, *values: bytes, commit: bool = True) -> None:
        before = self._end(topic)
        producer = Producer({**self.bare, "transactional.id": self.unique_name("transaction")})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(DEADLINE_S)
        if commit:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
        producer.close()
        deadline = time.monotonic() + DEADLINE_S
        while self._end(topic) <= before + len(values):  # the marker is written a moment later
            assert time.monotonic() < deadline, "the transaction's marker does not come"

    def _end(self, topic: str) -> int:
        return reading.spans(self.bare, topic)[0].end

    def compacted(self) -> str:
        topic = self.topic(config=COMPACTED)
        for value in (b"0", b"1", b"2"):
            self.write(topic, value, key=b"same")
        deadline = time.monotonic() + DEADLINE_S
        while [message.offset() for message in self.read(topic)][:1] != [2]:
            assert time.monotonic() < deadline, "the log was not compacted"
            self.write(topic, b"last", key=b"other")  # a write closes the old segment
        return topic

    def evict(self, source: Source, turn_others: Callable[[], object]) -> None:
        """Let ``turn_others`` poll until they own the source's partitions; the source does not
        poll."""
        del source
        turn_others()
