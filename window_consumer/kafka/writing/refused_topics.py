"""Topics with a record that the brokers refused: they get a separate client.

With ``enable.gapless.guarantee`` a refused batch is fatal for the client, so that nothing overtakes
a resent record. With a single client for all topics, each refusal would stop them all. The separate
client does not need that guarantee: each record is its own batch, so a refusal concerns only that
record, and the next record of its topic and key is sent after its delivery report.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic

from attrs import define, field

from window_consumer.kafka.writing.memory_limit import MemoryLimit
from window_consumer.kafka.writing.sent_record import OutgoingRecord, Sent

OF_REFUSED: Final = {"batch.num.messages": 1, "linger.ms": 0, "enable.gapless.guarantee": False}
"""The properties in which the client of these topics differs."""

CALM_S: Final = 1.0
"""A topic returns to the shared client after this long without a refusal."""

_LONGEST_CALM_S: Final = 3_600.0
"""Each premature return doubles the time, up to this."""

_Place = tuple[str, bytes | None]


@define
class _RefusedTopic:
    refused_at: float
    calm_s: float
    open_records: int = 0
    in_flight: int = 0
    is_returning: bool = False
    """Its records wait until those in flight have their delivery reports."""


@define
class _Chain(Generic[Sent]):
    waiting: deque[Sent] = field(factory=deque)
    is_busy: bool = False
    """Whether the record that precedes the waiting ones is in flight."""


class RefusedTopics(Generic[Sent]):
    """Decides which records the separate client gets. Owner: as for MissingTopics."""

    def __init__(self, memory: MemoryLimit):
        self._memory = memory
        self._topics: dict[str, _RefusedTopic] = {}
        self._calm_s: dict[str, float] = {}
        self._chains: dict[_Place, _Chain[Sent]] = {}
        """The records of each topic and key; without a key, those of a returning topic."""
        self.ready: deque[Sent] = deque()
        """Records for the separate client to send now; they count as in flight."""

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __bool__(self) -> bool:
        return bool(self._topics)

    def __len__(self) -> int:
        """Return how many records are outstanding. Any thread may call."""
        return sum(each.open_records for each in list(self._topics.values()))

    def add(self, topic: str, now: float) -> None:
        """Start sending a topic separately."""
        calm_s = self._calm_s.get(topic, CALM_S)
        self._calm_s[topic] = min(2 * calm_s, _LONGEST_CALM_S)
        self._topics[topic] = _RefusedTopic(now, calm_s)

    def send(self, record: Sent) -> None:
        """Send a record of one of these topics, after those of its key."""
        self._memory.hold(record)
        topic = self._topics[record.topic]
        topic.open_records += 1
        chain = self._chains.setdefault(_place_of(record), _Chain())
        chain.waiting.append(record)
        self._advance(topic, chain)

    def _advance(self, topic: _RefusedTopic, chain: _Chain[Sent]) -> None:
        """Send what a chain allows: the next record, or all records without a key."""
        while chain.waiting and not (chain.is_busy or topic.is_returning):
            record = chain.waiting.popleft()
            chain.is_busy = record.key is not None
            topic.in_flight += 1
            self.ready.append(record)

    def on_refused(self, name: str, now: float) -> None:
        """Record a refusal: the topic does not return yet."""
        topic = self._topics[name]
        topic.refused_at = now
        if topic.is_returning:
            topic.is_returning = False
            for place, chain in list(self._chains.items()):
                if place[0] == name:
                    self._advance(topic, chain)

    def on_ended(self, record: Sent) -> None:
        """Record that a record is done, with any result; the next one of its key may be sent."""
        topic, place = self._topics[record.topic], _place_of(record)
        topic.in_flight -= 1
        self._leave(record)
        chain = self._chains.setdefault(place, _Chain())
        chain.is_busy = False
        self._advance(topic, chain)
        if not (chain.is_busy or chain.waiting):
            del self._chains[place]

    def take_chain(self, record: Sent) -> list[Sent]:
        """Remove and return a record in flight, whose topic is missing, and those after it."""
        self._topics[record.topic].in_flight -= 1
        chain = self._chains.pop(_place_of(record), _Chain())
        found = [record, *chain.waiting]
        self._leave(*found)
        return found

    def _leave(self, *records: Sent) -> None:
        self._memory.release(*records)
        for each in records:
            self._topics[each.topic].open_records -= 1

    def take_calm(self, now: float) -> list[Sent]:
        """End the separation of calm topics; return their unsent records, which go first."""
        found: list[Sent] = []
        for name, topic in list(self._topics.items()):
            if now - topic.refused_at < topic.calm_s:
                continue
            topic.is_returning = True
            if not topic.in_flight:
                places = [place for place in self._chains if place[0] == name]
                waiting = [each for place in places for each in self._chains.pop(place).waiting]
                self._leave(*waiting)
                found += waiting
                del self._topics[name]
        return found

    def clear(self) -> list[Sent]:
        """Remove and return all records; only those in ``ready`` are in flight."""
        found = [*self.ready, *(each for chain in self._chains.values() for each in chain.waiting)]
        self._memory.release(*found)
        self.ready.clear()
        self._chains.clear()
        self._topics.clear()
        return found


def _place_of(record: OutgoingRecord) -> _Place:
    """Return the chain of a record: topic and key; records without a key have no order."""
    key = record.key
    return record.topic, key.encode() if isinstance(key, str) else key
