"""The logs of a simulation's sources: records are written to them and lost from them."""

from __future__ import annotations

from window_consumer.model import headers as names
from window_consumer.model.protocols import Commit, Headers
from window_consumer.simulator.schedule import GROUP
from window_consumer.simulator.shared import SharedSimulation
from window_consumer.testing.fakes.log import FakeLog

MOST_DEADLY = 3
"""The most records that end their process: each of them ends several processes."""

_FOREIGN = ("", "AAAB", "wc1.", "wc1.AAAA", "wc1.____________________", "\u00e9\u4e16")
"""Metadata of commits that other clients made."""


class SourceLogs:
    """Acts as producers, the log cleaner and administrators. Owner: one thread."""

    def __init__(self, scene: SharedSimulation):
        self._scene = scene
        self._plan = scene.plan
        self._rng = scene.rng
        self._broker = scene.broker
        self._history = scene.history
        self._deadly = 0

    def write(self) -> None:
        """Write some records to one log."""
        rng = self._rng
        log = self._any()
        for _ in range(1 + int(rng.random() * 8)):
            if rng.random() < 0.1 and "holes" in self._plan.actions:
                log.skip(1 + int(rng.random() * 3))
            self.produce(log, self._plan.keys[int(rng.random() * len(self._plan.keys))])

    def produce(self, log: FakeLog, key: bytes | None) -> None:
        """Write a record."""
        rng = self._rng
        size = int(rng.random() * (self._plan.max_value + 1))
        value: bytes | None = b"x" * size
        if self._plan.values:
            value = self._plan.values[int(rng.random() * len(self._plan.values))]
        if rng.random() < 0.05:
            value = None
        message = log.append(key, value, self._headers(), 1_700_000_000_000)
        deadly = self._deadly < MOST_DEADLY and rng.random() < self._plan.handlers.deadly
        self._deadly += deadly
        poison = rng.random() < self._plan.handlers.poison
        self._history.produced(log, message, poison=poison, deadly=deadly)

    def _headers(self) -> Headers:
        if self._rng.random() < 0.7:
            return ()
        if self._rng.random() < 0.3:
            # Repeated headers from a producer, and records redriven elsewhere.
            return ((names.TAGS, b"a"), (names.TAGS, b"b"), (names.REDRIVES, b"1"), (names.ID, b""))
        return (
            ("trace", b"1"),
            ("trace", None),
            (names.ATTEMPTS, b"99"),
            (names.TAGS, b"vip"),
            (names.REASON, b"MANUAL"),
        )

    def _any(self) -> FakeLog:
        topics = self._plan.sources
        topic = topics[int(self._rng.random() * len(topics))]
        logs = self._broker.topics.by_name[topic].logs
        return logs[int(self._rng.random() * len(logs))]

    def make_holes(self) -> None:
        """Compact a log, or end it with markers."""
        log = self._any()
        if self._rng.random() < 0.5:
            log.skip(1 + int(self._rng.random() * 3))
            self._history.record(f"{log.name} ends at {log.end} with markers")
        else:
            gone = {m.offset() for m in log.messages if self._rng.random() < 0.3}
            log.compact(gone)
            self._history.sweep(self._history.ledger(log))
            self._history.record(f"{log.name} is compacted")

    def delete_oldest(self) -> None:
        """Delete a log's first records."""
        log = self._any()
        log.delete_before(log.start + int(self._rng.random() * (log.end - log.start + 1)))
        self._history.sweep(self._history.ledger(log))
        self._history.record(f"{log.name} begins at {log.start} now")

    def truncate(self) -> None:
        """Cut off a log's last records; their offsets are used again."""
        log = self._any()
        end = log.end
        self._scene.audit.tampered.add(log.name.topic)
        log.truncate(log.end - int(self._rng.random() * 8))
        self._history.cut(log, end)

    def widen(self) -> None:
        """Add a partition to a topic."""
        topic = self._rng.choice(self._plan.sources)
        partitions = self._broker.topics.partitions(topic)
        if partitions < 6:
            self._scene.ladder.widen(topic, partitions + 1)
            self._broker.add_partitions(topic, partitions + 1)
            self._history.record(f"{topic} has {partitions + 1} partitions now")

    def remake(self) -> None:
        """Delete a topic and create it again."""
        topic = self._rng.choice(self._plan.sources)
        partitions = self._broker.topics.partitions(topic) + (self._rng.random() < 0.3)
        self._scene.ladder.widen(topic, partitions)
        self._scene.audit.tampered.add(topic)
        self._broker.remake_topic(topic, partitions)
        self._history.record(f"{topic} is deleted and recreated")

    def move_offset(self) -> None:
        """Move the committed offset of one log, while the group has no members."""
        log = self._any()
        self._scene.audit.tampered.add(log.name.topic)
        before = self._broker.group(GROUP).committed(log.name)
        offset = log.start + int(self._rng.random() * (log.end - log.start + 1))
        texts = (*_FOREIGN, before.metadata if before.next_offset != offset else "")
        commit = Commit(log.name, offset, self._rng.choice(texts))
        self._broker.move_offset(GROUP, commit)
        self._history.record(f"an administrator moves {log.name} to {offset}")
