"""The log of one partition in memory: records at growing offsets, with holes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from window_consumer.engine.offsets import after
from window_consumer.model.headers import LostHeaders
from window_consumer.model.protocols import Headers
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, TopicPartition

CREATE_TIME = 1
"""The first field of Message.timestamp() if the producer set the time."""


class FakeMessage:
    """A record with the interface of confluent_kafka.Message."""

    __slots__ = ("_headers", "_key", "_name", "_offset", "_size", "_timestamp_ms", "_value")

    def __init__(
        self,
        name: TopicPartition,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ):
        self._name = name
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers if type(headers) is LostHeaders else list(headers)
        self._timestamp_ms = timestamp_ms
        self._size = 0 if value is None else len(value)

    def __len__(self) -> int:
        return self._size

    def topic(self) -> str:
        """Return the topic's name."""
        return self._name.topic

    def partition(self) -> int:
        """Return the partition's number."""
        return self._name.partition

    def offset(self) -> int:
        """Return the record's own offset."""
        return self._offset

    def key(self) -> bytes | None:
        """Return the key."""
        return self._key

    def value(self) -> bytes | None:
        """Return the value; None is a tombstone."""
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return the headers, None without any, like the client."""
        return self._headers or None

    def timestamp(self) -> tuple[int, int]:
        """Return kind and milliseconds since 1970."""
        if self._timestamp_ms is None:
            return TIMESTAMP_NOT_AVAILABLE, 0
        return CREATE_TIME, self._timestamp_ms

    def __repr__(self) -> str:
        return f"<FakeMessage {self._name}@{self._offset}>"


class FakeLog:
    """One partition's log. Like Kafka's, it reuses no offset, unless it is truncated."""

    def __init__(self, name: TopicPartition):
        self.name = name
        self.start = 0
        """The first offset that may be read."""
        self.end = 0
        """One past the last offset used by a record or a marker."""
        self.messages: list[FakeMessage] = []
        self._offsets: list[int] = []

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> FakeMessage:
        """Write a record at the end and return it."""
        message = FakeMessage(self.name, self.end, key, value, headers, timestamp_ms)
        self.messages.append(message)
        self._offsets.append(self.end)
        self.end = after(self.end)
        return message

    def skip(self, offsets: int) -> None:
        """Advance the end without records: transaction markers, or aborted records."""
        self.end += offsets

    def compact(self, offsets: Collection[int]) -> None:
        """Remove records; a log with a record at its end keeps that one, like Kafka's."""
        keep = self._offsets[-1] if self._offsets else None
        self._retain([m for m in self.messages if m.offset() == keep or m.offset() not in offsets])

    def delete_before(self, offset: int) -> None:
        """Advance the start, as retention does."""
        self.start = max(self.start, min(offset, self.end))
        self._retain([m for m in self.messages if m.offset() >= self.start])

    def truncate(self, end: int) -> None:
        """Truncate the log, as an unclean leader election does; offsets are reused."""
        self.end = max(self.start, min(end, self.end))
        self._retain([m for m in self.messages if m.offset() < self.end])

    def at(self, offset: int) -> FakeMessage:
        """Return the record at an offset; ``KeyError`` if there is none."""
        index = bisect_left(self._offsets, offset)
        if index == len(self._offsets) or self._offsets[index] != offset:
            raise KeyError(offset)
        return self.messages[index]

    def holds(self, offset: int) -> bool:
        """Return whether reading may begin there; it may begin at the end."""
        return self.start <= offset <= self.end

    def read(self, offset: int, limit: int) -> tuple[list[FakeMessage], int]:
        """Return up to ``limit`` records from an offset on, and the next offset to read.

        After the last record the next offset is beyond any markers.
        """
        index = bisect_left(self._offsets, offset)
        messages = self.messages[index : index + limit]
        if index + limit < len(self.messages):
            return messages, after(messages[-1].offset())
        return messages, self.end

    def _retain(self, messages: list[FakeMessage]) -> None:
        self.messages = messages
        self._offsets = [message.offset() for message in messages]
