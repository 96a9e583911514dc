"""Records whose topic is not there: it may be made, or made again, within a minute."""

from __future__ import annotations

import time
from collections.abc import Iterator

from attrs import define, field

from window_consumer.producer.future import SendFuture
from window_consumer.producer.memory_limit import MemoryLimit

_ASK_S = 1.0
_REMEMBERED_S = 60.0
"""A topic that nobody has sent to for so long may be missed anew."""


@define
class _MissingTopic:
    since: float
    held: list[SendFuture] = field(factory=list)
    last_held: float = 0.0
    asked_at: float = 0.0


class MissingTopics:
    """Holds records back, by topic. The thread that hands out answers releases them."""

    def __init__(self, patience_s: float, bound: MemoryLimit):
        self._patience_s = patience_s
        self._bound = bound
        self._topics: dict[str, _MissingTopic] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __bool__(self) -> bool:
        return bool(self._topics)

    def is_expired(self, topic: str) -> bool:
        """Tell whether a topic has been missing for too long."""
        missing = self._topics.get(topic)
        return missing is not None and time.monotonic() - missing.since >= self._patience_s

    def hold(self, future: SendFuture) -> bool:
        """Keep a record; return False where its topic has been missing for too long."""
        now = time.monotonic()
        topic = self._topics.setdefault(future.topic, _MissingTopic(now))
        topic.last_held = now
        if now - topic.since >= self._patience_s:
            return False
        topic.held.append(future)
        self._bound.hold(future)
        return True

    def count(self) -> int:
        """Return how many records are held."""
        return sum(len(each.held) for each in list(self._topics.values()))

    def due(self) -> Iterator[str]:
        """Yield the topics that the cluster is to be asked for now."""
        now = time.monotonic()
        for name, topic in list(self._topics.items()):
            if now - topic.asked_at >= _ASK_S:
                topic.asked_at = now
                yield name

    def release(self, topic: str) -> list[SendFuture]:
        """Return the records of a topic that is there."""
        held = self._topics.pop(topic).held
        self._bound.release(*held)
        return held

    def expired(self) -> list[SendFuture]:
        """Return the records that have waited long enough.

        Their topic stays here while somebody sends to it, so that it is missed at once.
        """
        now = time.monotonic()
        found: list[SendFuture] = []
        for name, topic in list(self._topics.items()):
            if now - topic.since >= self._patience_s:
                found += topic.held
                topic.held = []
                if now - topic.last_held > _REMEMBERED_S:
                    del self._topics[name]
        self._bound.release(*found)
        return found

    def clear(self) -> list[SendFuture]:
        """Return all records, and hold none."""
        found = [future for topic in self._topics.values() for future in topic.held]
        self._topics.clear()
        self._bound.release(*found)
        return found
