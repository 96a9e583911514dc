"""A record that was stored and read back, independent of the client."""

from __future__ import annotations

from attrs import frozen

from window_consumer.model.protocols import Headers
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, TopicPartition

_CREATE_TIME = 1
"""The first field of Message.timestamp() if there is a time."""


@frozen(kw_only=True)
class StoredMessage:
    """A record as a Source delivers it, built from its parts."""

    name: TopicPartition
    at: int
    """Its offset."""
    key_bytes: bytes | None
    value_bytes: bytes | None
    header_pairs: Headers = ()
    timestamp_ms: int | None = None

    def __len__(self) -> int:
        return len(self.value_bytes or b"")

    def topic(self) -> str:
        """Return the topic's name."""
        return self.name.topic

    def partition(self) -> int:
        """Return the partition's number."""
        return self.name.partition

    def offset(self) -> int:
        """Return the record's own offset."""
        return self.at

    def key(self) -> bytes | None:
        """Return the key's bytes or None."""
        return self.key_bytes

    def value(self) -> bytes | None:
        """Return the value's bytes, None for a tombstone."""
        return self.value_bytes

    def headers(self) -> Headers | None:
        """Return pairs of name and bytes (or None), None if there are no headers."""
        return list(self.header_pairs) or None

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp type and milliseconds since 1970."""
        if self.timestamp_ms is None:
            return TIMESTAMP_NOT_AVAILABLE, 0
        return _CREATE_TIME, self.timestamp_ms
