"""Records whose topic does not exist: it may be created, or recreated, within a minute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic

from attrs import define, field

from window_consumer.kafka.writing.memory_limit import MemoryLimit
from window_consumer.kafka.writing.sent_record import Sent

_QUERY_S: Final = 1.0
_REMEMBERED_S: Final = 60.0
"""After this long without a record, a missing topic gets its full waiting time again."""


@define
class _MissingTopic(Generic[Sent]):
    since: float
    held: list[Sent] = field(factory=list)
    last_held: float = 0.0
    queried_at: float = float("-inf")


class MissingTopics(Generic[Sent]):
    """Holds records back, by topic. Owner: the holder of the lock of its UnackedRecords."""

    def __init__(self, patience_s: float, memory: MemoryLimit):
        self._patience_s = patience_s
        self._memory = memory
        self._topics: dict[str, _MissingTopic[Sent]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __bool__(self) -> bool:
        return bool(self._topics)

    def __len__(self) -> int:
        """Return how many records are held. Any thread may call."""
        return sum(len(each.held) for each in list(self._topics.values()))

    def is_expired(self, topic: str, now: float) -> bool:
        """Return whether a topic has been missing for too long."""
        missing = self._topics.get(topic)
        return missing is not None and now - missing.since >= self._patience_s

    def hold(self, record: Sent, now: float) -> bool:
        """Keep a record; return False if its topic has been missing for too long."""
        topic = self._topics.setdefault(record.topic, _MissingTopic(now))
        topic.last_held = now
        if self.is_expired(record.topic, now):
            return False
        topic.held.append(record)
        self._memory.hold(record)
        return True

    def due(self, now: float) -> Iterator[str]:
        """Yield the topics to ask the cluster for now."""
        for name, topic in list(self._topics.items()):
            if now - topic.queried_at >= _QUERY_S:
                topic.queried_at = now
                yield name

    def release(self, topic: str) -> list[Sent]:
        """Remove and return the records of a topic that now exists."""
        held = self._topics.pop(topic).held
        self._memory.release(*held)
        return held

    def expired(self, now: float) -> list[Sent]:
        """Remove and return the records that have waited too long.

        Their topic stays listed while records for it arrive, so that those fail at once.
        """
        found: list[Sent] = []
        for name, topic in list(self._topics.items()):
            if self.is_expired(name, now):
                found += topic.held
                topic.held = []
                if now - topic.last_held > _REMEMBERED_S:
                    del self._topics[name]
        self._memory.release(*found)
        return found

    def clear(self) -> list[Sent]:
        """Remove and return all records."""
        return [record for name in list(self._topics) for record in self.release(name)]
