"""An Engine with retry levels that is driven by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, Note, spent_after
from window_consumer.engine.retry.retry_topics import Level, RetryTopicLevel
from window_consumer.model import headers as names
from window_consumer.model.record import TopicPartition

SHORT, MIDDLE, LONG = Level("1s", 1.0), Level("10s", 10.0), Level("1m", 60.0)
LEVELS = (SHORT, MIDDLE, LONG)
RETRIED = TopicPartition("g.orders.retry.1s", 0)
RETRIED_LATER = TopicPartition("g.orders.retry.10s", 0)
ENTRY = TopicPartition("g.orders.retry.now", 0)
RETRY_LEVELS = {
    RETRIED.topic: RetryTopicLevel("orders", SHORT, is_copy=True),
    RETRIED_LATER.topic: RetryTopicLevel("orders", MIDDLE, is_copy=True),
    ENTRY.topic: RetryTopicLevel("orders", None, is_copy=True),
}


class Laddered(Driven):
    """An Engine that reads orders and two of its levels, unless a test names its partitions."""

    def __init__(
        self, *, owned: Iterable[TopicPartition] = (ORDERS, RETRIED, RETRIED_LATER), **rules: Any
    ):
        given = {"retry": spent_after(1, levels=LEVELS), **rules}
        super().__init__(names=(), **given)
        self.engine = self.make(self.engine.rules, RETRY_LEVELS)
        self.assign(*owned)

    def copy(
        self,
        offset: int,
        due_in: float,
        key: bytes | None = b"k",
        attempts: int = 1,
        partition: int = 0,
        original: int = 7,
    ) -> Note:
        """Return a copy that lies in a level, of a record of this partition."""
        headers = [
            (names.ID, b"orders/0/7"),
            (names.ORIGINAL_TOPIC, b"orders"),
            (names.ORIGINAL_PARTITION, b"%d" % partition),
            (names.ORIGINAL_OFFSET, b"%d" % original),
            (names.ATTEMPTS, b"%d" % attempts),
            (names.FIRST_FAILURE, b"1600000000000"),
            (names.NOT_BEFORE, b"%d" % (self.wall_ms + due_in * 1000)),
        ]
        return Note(offset, key, topic=RETRIED.topic, headers=headers)
