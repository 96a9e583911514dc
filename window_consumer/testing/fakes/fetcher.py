"""The fetcher of a fake Source: its position in each partition, and its fetched records."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from window_consumer.engine.offsets import after
from window_consumer.model.errors import MissingTopicError, RunError, WindowConsumerError
from window_consumer.model.headers import LostHeaders
from window_consumer.model.protocols import Batch
from window_consumer.model.record import Message, TopicPartition
from window_consumer.testing.fakes.log import FakeLog, FakeMessage
from window_consumer.testing.fakes.topics import FakeTopics

PREFETCH = 20
"""How many records of a partition are fetched at once. They are delivered whatever happens to the
log meanwhile.
"""


class SourcePosition:
    """Where a source reads one partition. Owner: its source."""

    __slots__ = ("fetch_from", "fetched", "paused", "position", "reads_on", "stands")

    def __init__(self, offset: int | None):
        self.fetched: deque[FakeMessage] = deque()
        self.fetch_from = 0
        self.reads_on = 0
        """The position once everything that was fetched is delivered."""
        self.position: int | None = None
        self.paused = False
        self.stands = False
        """Out of range, or without a topic: nothing is read until a seek."""
        self.go_to(offset)

    def go_to(self, offset: int | None) -> None:
        """Read from an offset; None pauses until it is known."""
        self.fetched.clear()
        self.position = None
        self.paused = offset is None
        self.stands = False
        self.fetch_from = self.reads_on = offset or 0

    def fetch(self, log: FakeLog) -> None:
        """Fetch the next records; even markers alone move the position."""
        messages, self.reads_on = log.read(self.fetch_from, PREFETCH)
        if not messages and self.reads_on > self.fetch_from:
            self.position = self.reads_on
        self.fetched.extend(messages)
        self.fetch_from = self.reads_on

    def deliver(self, offset: int) -> None:
        """Record that the record at this offset was delivered, and all before it."""
        self.position = after(offset) if self.fetched else self.reads_on

    def pause(self) -> None:
        """Deliver nothing until the next ``go_to``."""
        self.paused = True
        self.fetched.clear()


class FakeFetcher:
    """Reads the assigned partitions of one source. Owner: its source."""

    def __init__(self, topics: FakeTopics):
        self.assigned: dict[TopicPartition, SourcePosition] = {}
        self.errors: deque[tuple[TopicPartition, WindowConsumerError | None]] = deque()
        """What the next poll reports; None for a position out of range."""
        self.moved: set[TopicPartition] = set()
        """Partitions whose reading position changed since the current poll took its records."""
        self._cluster = topics
        self._next = 0

    def assign(self, names: Sequence[TopicPartition]) -> None:
        """Add partitions, which stay paused until their offset is known."""
        self.assigned.update((name, SourcePosition(None)) for name in names)

    def release(self, names: Sequence[TopicPartition]) -> None:
        """Remove partitions."""
        for name in names:
            self.assigned.pop(name, None)

    def stands(self, name: TopicPartition) -> bool:
        """Return whether nothing is read until a seek."""
        return name in self.assigned and self.assigned[name].stands

    def go_to(self, name: TopicPartition, offset: int | None) -> None:
        """Read a partition from an offset; None pauses it."""
        reading = self.assigned.get(name)
        if reading is None:
            raise RunError(f"{name} cannot be read: it is not assigned")
        reading.go_to(offset)
        self.moved.add(name)

    def pause(self, names: Sequence[TopicPartition]) -> None:
        """Deliver nothing of these partitions; discard what was fetched."""
        for name in names:
            if name in self.assigned:
                self.assigned[name].pause()

    def positions(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return how far each partition was read since its last start or seek."""
        return {
            name: reading.position
            for name in names
            if (reading := self.assigned.get(name)) and reading.position is not None
        }

    def take(self, limit: int) -> list[Batch]:
        """Deliver what was fetched, starting with another partition each time."""
        batches: list[Batch] = []
        names = list(self.assigned)
        self._next += 1
        for index in range(len(names)):
            name = names[(self._next + index) % len(names)]
            reading = self.assigned[name]
            if reading.paused or reading.stands or not limit:
                continue
            if not reading.fetched:
                self._fetch(name, reading)
            messages: list[Message] = []
            while reading.fetched and len(messages) < limit:
                messages.append(reading.fetched.popleft())
            if messages:
                limit -= len(messages)
                batch = Batch.of(name, messages)
                lost = (each for each in messages if type(each.headers()) is LostHeaders)
                batch.unreadable.extend(each.offset() for each in lost)
                batches.append(batch)
                reading.deliver(messages[-1].offset() or 0)
        return batches

    def _fetch(self, name: TopicPartition, reading: SourcePosition) -> None:
        log = self._cluster.log(name)
        if name in self._cluster.leaderless:
            return
        if log is None:
            reading.stands = True
            self.errors.append((name, MissingTopicError(f"{name}: unknown topic or partition")))
        elif not log.holds(reading.fetch_from):
            reading.stands = True
            self.errors.append((name, None))
        else:
            reading.fetch(log)
