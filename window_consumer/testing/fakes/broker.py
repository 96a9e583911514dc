"""A Kafka cluster in memory, for tests: one thread, no time of its own, faults on demand.

Create topics, write records, pass ``source()`` and ``sink()`` to the code under test, and cause
faults: rebalances, evicted members, refused commits, truncated logs, recreated topics, copies
without an ack. The conformance suite runs on this broker and on a real one.
"""

from __future__ import annotations

from collections.abc import Collection

from window_consumer.model.protocols import Commit, Copy, Headers
from window_consumer.model.record import TopicPartition
from window_consumer.testing.fakes.group import FakeGroup
from window_consumer.testing.fakes.log import FakeLog, FakeMessage
from window_consumer.testing.fakes.sink import FakeSink, Fate, FateOf
from window_consumer.testing.fakes.source import FakeSource
from window_consumer.testing.fakes.topics import DEFAULT_MAX_MESSAGE_BYTES, FakeTopic, FakeTopics


class FakeBroker:
    """Topics and groups in memory. Owner: one thread."""

    def __init__(self, cluster: str = "") -> None:
        """``cluster`` makes the ids of topics unique; without it they are the same each time."""
        self.topics = FakeTopics(cluster)
        self.groups: dict[str, FakeGroup] = {}
        self.fate_of: FateOf = lambda _copy: Fate.ACKED
        """Decides what happens to a copy that a Sink writes."""

    # ---- topics

    def create_topic(
        self, name: str, partitions: int = 1, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    ) -> FakeTopic:
        """Create a topic; groups that read it rebalance at once."""
        topic = self.topics.create(name, partitions, max_message_bytes)
        self._rebalance_readers(name)
        return topic

    def add_partitions(self, name: str, partitions: int) -> None:
        """Widen a topic to ``partitions``; groups that read it rebalance at once."""
        self.topics.widen(name, partitions)
        self._rebalance_readers(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and its committed offsets."""
        self.topics.delete(name)
        for group in self.groups.values():
            group.delete_offsets(name)
        self._rebalance_readers(name)

    def remake_topic(self, name: str, partitions: int) -> FakeTopic:
        """Delete a topic and recreate it at once: no group notices, only the id differs."""
        self.topics.delete(name)
        for group in self.groups.values():
            group.delete_offsets(name)
        return self.topics.create(name, partitions)

    # ---- records

    def log(self, topic: str, partition: int = 0) -> FakeLog:
        """Return a partition's log; ``KeyError`` if there is no such partition."""
        name = TopicPartition(topic, partition)
        log = self.topics.log(name)
        if log is None:
            raise KeyError(str(name))
        return log

    def produce(
        self,
        topic: str,
        partition: int = 0,
        key: bytes | None = None,
        value: bytes | None = b"",
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> FakeMessage:
        """Append a record and return it in the form of its delivery."""
        return self.log(topic, partition).append(key, value, headers, timestamp_ms)

    def compact(self, topic: str, partition: int, offsets: Collection[int]) -> None:
        """Remove records from a log; its last record stays."""
        self.log(topic, partition).compact(offsets)

    # ---- groups

    def group(self, name: str, *, incremental: bool = True) -> FakeGroup:
        """Return a group, created at the first call; later calls cannot change its kind."""
        group = self.groups.get(name)
        if group is None:
            group = FakeGroup(name, self.topics.partitions, incremental=incremental)
            self.groups[name] = group
        return group

    def evict(self, source: FakeSource) -> None:
        """Time out a member's session: its partitions are free, it learns of it later."""
        for group in self.groups.values():
            group.leave(source)

    def move_offset(self, group: str, commit: Commit) -> None:
        """Commit manually, as Kafka's tools do; RuntimeError while the group has members."""
        self.group(group).write_as_administrator(commit)

    def _rebalance_readers(self, topic: str) -> None:
        for group in self.groups.values():
            if any(topic in member.topics for member in group.members):
                group.rebalance()

    # ---- clients

    def source_of_all(self) -> FakeSource:
        """Return a consumer that reads all partitions: the only member of its own group."""
        return self.source(f"all {len(self.groups)}")

    def source(self, group: str, *, incremental: bool = True) -> FakeSource:
        """Return a consumer; it joins the group when it subscribes."""
        return FakeSource(self.topics, self.group(group, incremental=incremental))

    def sink(self) -> FakeSink:
        """Return a producer of copies."""
        return FakeSink(self.topics, self.fate)

    def fate(self, copy: Copy) -> Fate:
        """Decide what happens to a copy, by the current ``fate_of``."""
        return self.fate_of(copy)


__all__ = ["FakeBroker", "FakeGroup", "FakeLog", "FakeMessage", "FakeSink", "FakeSource", "Fate"]
