"""Messages of the real client, made by hand: their methods cost the same as in a consumer."""

from __future__ import annotations

import random
from typing import Any

from confluent_kafka import Message

from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.model.protocols import Copy
from window_consumer.model.record import TopicPartition

ORDERS = TopicPartition("orders", 0)

_VALUE = b"x" * 100
_SEED = 20_240


def messages(count: int, keys: int = 0) -> list[Any]:
    """Return messages with the offsets from 0 on, and random keys."""
    rng = random.Random(_SEED)
    return [
        Message(
            topic=ORDERS.topic,
            partition=ORDERS.partition,
            offset=offset,
            key=b"%d" % rng.randrange(keys) if keys else None,
            value=_VALUE,
        )
        for offset in range(count)
    ]


def no_copy(failed: FailedRecord, _wall_offset_ms: float) -> Copy:
    """Make the copy of a record: none of these fails."""
    raise NotImplementedError(str(failed))
