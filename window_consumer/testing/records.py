"""Records made by hand, for tests that call a handler themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from window_consumer.model.record import Call, Record, TopicPartition
from window_consumer.testing.fake_log import FakeMessage


def make_record(  # noqa: PLR0913 - the parts of a record
    *,
    topic: str,
    value: bytes | None,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    partition: int = 0,
    offset: int = 0,
    timestamp: int | None = None,
    attempt: int = 1,
    state: Any = None,
) -> Record:
    """Return a record as a handler gets it, made of these bytes.

    ``timestamp`` is in milliseconds since 1970; ``state`` is what ``record.state`` shall be, where
    the handler needs what the application's lifespan yields.
    """
    message = FakeMessage(TopicPartition(topic, partition), offset, key, value, headers, timestamp)
    return Record.of(message, Call(attempt, state))
