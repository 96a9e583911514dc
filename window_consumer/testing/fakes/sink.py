"""A Sink that writes to a fake broker's topics, and answers in ``serve``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy, Delivery
from window_consumer.model.record import TopicPartition
from window_consumer.testing.fakes.log import FakeMessage
from window_consumer.testing.fakes.topics import FakeTopics, partition_of, size_of


class Fate(Enum):
    """What happens to a copy that is not too large."""

    ACKED = "acked"
    LOST = "timed out and was not written"
    WRITTEN = "timed out although it was written"
    QUEUE_FULL = "the client's queue was full"


FateOf = Callable[[Copy], Fate]


class FakeSink:
    """Writes copies; each is answered once, in ``serve``. Owner: one thread."""

    def __init__(self, topics: FakeTopics, fate_of: FateOf):
        self._topics = topics
        self._fate_of = fate_of
        self._unanswered: deque[tuple[Copy, Delivery, Fate]] = deque()

    @property
    def unanswered(self) -> int:
        """How many copies wait for their answer."""
        return len(self._unanswered)

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy; answer at once if it cannot be queued."""
        fate = self._fate_of(copy)
        if fate is Fate.QUEUE_FULL:
            on_delivery(PublishFailedError(f"copy to {copy.topic}: the producer's queue is full"))
        else:
            self._unanswered.append((copy, on_delivery, fate))

    def serve(self, timeout_s: float = 0.0, at_most: int | None = None) -> None:  # noqa: ARG002 - there is nothing to wait for
        """Deliver the answers, at most ``at_most`` if given."""
        count = len(self._unanswered) if at_most is None else min(at_most, len(self._unanswered))
        for _ in range(count):
            copy, on_delivery, fate = self._unanswered.popleft()
            on_delivery(self._decide(copy, fate))

    def close(self, timeout_s: float) -> int:
        """Deliver all outstanding answers; return 0."""
        self.serve(timeout_s)
        return len(self._unanswered)

    def append(self, name: TopicPartition, copy: Copy) -> FakeMessage:
        """Write a copy to its log."""
        return self._topics.write(name, copy.key, copy.value, copy.headers, copy.timestamp)

    def refusal(self, copy: Copy) -> PublishFailedError | None:
        """Return why a copy is always refused, None if it is not."""
        topic = self._topics.by_name.get(copy.topic)
        if topic is None:
            text = f"copy to {copy.topic}: there is no such topic"
            return PublishFailedError(text, of_topic=True)
        size = size_of(copy.key, copy.value, copy.headers)
        if size > topic.max_message_bytes:
            text = f"copy to {copy.topic}: {size} bytes, at most {topic.max_message_bytes}"
            return PublishFailedError(text, too_large=True)
        if copy.partition is not None and copy.partition >= len(topic.logs):
            text = f"copy to {copy.topic}: there is no partition {copy.partition}"
            return PublishFailedError(text, refused=True)
        return None

    def _decide(self, copy: Copy, fate: Fate) -> PublishFailedError | None:
        refusal = self.refusal(copy)
        if refusal is not None:
            return refusal
        if fate is not Fate.LOST:
            partition = copy.partition
            if partition is None:
                count = len(self._topics.by_name[copy.topic].logs)
                partition = partition_of(copy.key or b"", count)
            self.append(TopicPartition(copy.topic, partition), copy)
        if fate is Fate.ACKED:
            return None
        return PublishFailedError(f"copy to {copy.topic}: no answer in time")
