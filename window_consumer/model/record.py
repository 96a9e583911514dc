"""The record that a handler receives, and what it is made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from window_consumer.model.record_identity import (
    RecordOrigin,
    given_id,
    id_text,
    origin_in,
)


class TopicPartition(NamedTuple):
    """A partition's name; used as a dictionary key everywhere."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Message(Protocol):
    """What a Source delivers: the part of confluent_kafka.Message that we use.

    ``len(message)`` is the size of the value in bytes and cheap. The client's stubs allow None for
    topic, partition and offset; a delivered record has them.
    """

    def __len__(self) -> int: ...

    def topic(self) -> Any:
        """Return the topic's name, a fresh string each time."""

    def partition(self) -> Any:
        """Return the partition's number."""

    def offset(self) -> Any:
        """Return the record's own offset."""

    def key(self) -> Any:
        """Return the key's bytes or None."""

    def value(self) -> Any:
        """Return the value's bytes, None for a tombstone."""

    def headers(self) -> Any:
        """Return pairs of name and bytes (or None), None where there are no headers."""

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the time, see below, and milliseconds since 1970."""


TIMESTAMP_NOT_AVAILABLE = 0
"""The first field of Message.timestamp() where a record has no time."""


class Call:
    """What a record shares with the others of its slice: attempt, state and cancellation."""

    __slots__ = ("attempt", "before", "cancelled", "handler", "owes", "state", "whose")

    def __init__(
        self,
        attempt: int = 1,
        state: Any = None,
        before: Callable[[Message], int] | None = None,
    ):
        self.attempt = attempt
        self.state = state
        self.handler = ""
        """Which of a worker's several handlers was called last; empty where it has one."""
        self.before = before
        """Tells how often a handler was called for a record in other topics of the ladder."""
        self.whose: Any = None
        """Whose log lines are about it, as ``runtime.current`` has it."""
        self.cancelled = False
        self.owes = False
        """A handler within middleware has returned records to produce."""

    def number_of(self, message: Message) -> int:
        """Return which call this is for a record, 1 at first, retry topics included."""
        return self.attempt if self.before is None else self.attempt + self.before(message)


class Record:
    """One Kafka record as its handler sees it.

    It wraps the client's message and copies nothing, so that making one costs about 50 ns. Two
    records are never equal unless they are the same object. A handler may keep a record, pass it
    to other threads and read it after it has returned.
    """

    # Made by the slots' loop, which sets both fields itself: a call of __init__ would cost more
    # than everything else that happens to a record there (measured: 117 ns against 55 ns).
    __slots__ = ("_call", "_message")
    _message: Message
    _call: Call

    @classmethod
    def of(cls, message: Message, call: Call) -> Record:
        """Wrap a message; ``call`` gives attempt, state and cancellation."""
        record = cls()
        record._message = message
        record._call = call
        return record

    @property
    def topic(self) -> str:
        """The topic that this delivery came from: of a copy, the retry topic. See ``origin``."""
        return str(self._message.topic())

    @property
    def partition(self) -> int:
        """The partition that this delivery came from. See ``origin``."""
        return int(self._message.partition())

    @property
    def offset(self) -> int:
        """The offset of this delivery: of a copy, its own in the retry topic. See ``origin``."""
        return int(self._message.offset())

    @property
    def id(self) -> str:
        """What to call the record, the same on every delivery: use it as the idempotency key.

        Its ``wc-id`` header (set by its producer, or by the framework on a copy), else
        ``topic/partition/offset`` of its first delivery.
        """
        given = given_id(self._message.headers())
        return str(self.origin) if given is None else id_text(given)

    @property
    def origin(self) -> RecordOrigin:
        """Where the record was delivered from first: ``topic``, ``partition`` and ``offset``.

        They are the record's own at first, and stay the same in retry topics and after a redrive.
        """
        first = origin_in(dict(self._message.headers() or ())) if self.is_copy else None
        return first or RecordOrigin(self.topic, self.partition, self.offset)

    @property
    def key(self) -> bytes | None:
        """The key's bytes, None where the record has none."""
        return self._message.key()  # type: ignore[no-any-return] # bytes without a deserialiser

    @property
    def value(self) -> bytes | None:
        """The value's bytes; None is a tombstone, which differs from an empty value."""
        return self._message.value()  # type: ignore[no-any-return] # bytes without a deserialiser

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Pairs of name and bytes (or None) in their order, repeated names kept."""
        return self._message.headers() or []

    def header(self, name: str) -> bytes | None:
        """Return the last value of a header, None where it is missing or has no value."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since 1970 by the producer or the broker, None where there is none."""
        kind, milliseconds = self._message.timestamp()
        return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds

    @property
    def attempt(self) -> int:
        """Which handler call this is for the record, 1 at first, retry topics included."""
        return self._call.number_of(self._message)

    @property
    def is_copy(self) -> bool:
        """True for a copy in one of the group's own retry topics."""
        return self._call.before is not None

    @property
    def state(self) -> Any:
        """What the application's lifespan yielded, None without one."""
        return self._call.state

    @property
    def cancelled(self) -> bool:
        """True once the result of this call will be ignored.

        The partition was lost, the call outlived the time that it had at a stop or a rebalance,
        or it was abandoned because it had not returned for ``stall.after``. A long handler should
        look now and then and return.
        """
        return self._call.cancelled

    def text(self, encoding: str = "utf-8") -> str:
        """Return the value as text; ``ValueError`` for a tombstone or bytes that are no text."""
        value = self.value
        if value is None:
            msg = f"{self!r} is a tombstone: it has no value to read as text"
            raise ValueError(msg)
        return value.decode(encoding)

    def json(self) -> Any:
        """Return the value parsed as JSON; ``ValueError`` for a tombstone or broken JSON."""
        value = self.value
        if value is None:
            msg = f"{self!r} is a tombstone: it has no value to read as JSON"
            raise ValueError(msg)
        return json.loads(value)

    def __repr__(self) -> str:
        return f"<Record {self.topic}[{self.partition}]@{self.offset} attempt {self.attempt}>"
