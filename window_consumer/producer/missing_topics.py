"""Records whose topic does not exist: it may be created, or recreated, within a minute."""

from __future__ import annotations

import time
from collections.abc import Iterator

from attrs import define, field

from window_consumer.producer.future import SendFuture
from window_consumer.producer.memory_limit import MemoryLimit

_QUERY_S = 1.0
_REMEMBERED_S = 60.0
"""After this long without a record, a missing topic gets its full waiting time again."""


@define
class _MissingTopic:
    since: float
    held: list[SendFuture] = field(factory=list)
    last_held: float = 0.0
    queried_at: float = 0.0


class MissingTopics:
    """Holds records back, by topic. The thread that serves delivery reports releases them."""

    def __init__(self, patience_s: float, bound: MemoryLimit):
        self._wait_limit_s = patience_s
        self._bound = bound
        self._topics: dict[str, _MissingTopic] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __bool__(self) -> bool:
        return bool(self._topics)

    def is_expired(self, topic: str) -> bool:
        """Return whether a topic has been missing for too long."""
        missing = self._topics.get(topic)
        return missing is not None and time.monotonic() - missing.since >= self._wait_limit_s

    def hold(self, future: SendFuture) -> bool:
        """Keep a record; return False if its topic has been missing for too long."""
        now = time.monotonic()
        topic = self._topics.setdefault(future.topic, _MissingTopic(now))
        topic.last_held = now
        if now - topic.since >= self._wait_limit_s:
            return False
        topic.held.append(future)
        self._bound.hold(future)
        return True

    def count(self) -> int:
        """Return how many records are held."""
        return sum(len(each.held) for each in list(self._topics.values()))

    def due(self) -> Iterator[str]:
        """Yield the topics to query the cluster for now."""
        now = time.monotonic()
        for name, topic in list(self._topics.items()):
            if now - topic.queried_at >= _QUERY_S:
                topic.queried_at = now
                yield name

    def release(self, topic: str) -> list[SendFuture]:
        """Remove and return the records of a topic that exists by now."""
        held = self._topics.pop(topic).held
        self._bound.release(*held)
        return held

    def expired(self) -> list[SendFuture]:
        """Remove and return the records that have waited too long.

        Their topic stays listed while records for it arrive, so that those fail at once.
        """
        now = time.monotonic()
        found: list[SendFuture] = []
        for name, topic in list(self._topics.items()):
            if now - topic.since >= self._wait_limit_s:
                found += topic.held
                topic.held = []
                if now - topic.last_held > _REMEMBERED_S:
                    del self._topics[name]
        self._bound.release(*found)
        return found

    def clear(self) -> list[SendFuture]:
        """Remove and return all records."""
        found = [future for topic in self._topics.values() for future in topic.held]
        self._topics.clear()
        self._bound.release(*found)
        return found
