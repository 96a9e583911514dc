"""One row of the outbox: the record that the relay sends, and its form in the columns."""

from __future__ import annotations

import base64
import json
import re
import uuid
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from window_consumer.config.units import UnitError, parse_duration
from window_consumer.model import headers as names
from window_consumer.model import traceparent
from window_consumer.model.durations import Delay

_TOPIC: Final = r"[A-Za-z0-9._-]{1,249}"
_NO_PAIRS: Final = 'they must be a JSON list of pairs, such as [["tenant", "eu"]]'


class OutboxRow(NamedTuple):
    """A due row as the relay sends it; a tuple because there are many."""

    id: uuid.UUID
    topic: str
    key: bytes | None
    payload: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int | None
    fault: str | None = None
    """Why it is not a valid record; such a row is never sent."""

    @property
    def order_key(self) -> tuple[str, bytes] | None:
        """The topic and key, whose rows stay in order; None for a row without a key."""
        return None if self.key is None else (self.topic, self.key)

    @property
    def size(self) -> int:
        """Bytes of key and payload."""
        return len(self.key or b"") + len(self.payload or b"")


def hash_of(topic: str, key: bytes | None, row_id: uuid.UUID) -> int:
    """Return the hash that determines a row's shard; the same for all rows of a key."""
    return zlib.crc32(topic.encode() + b"\x00" + (row_id.bytes if key is None else key))


def stored_headers(pairs: Iterable[tuple[str, bytes | None]]) -> list[list[Any]]:
    """Return headers in their column's form, without ``wc-id``, which is the row's id."""
    return [[name, _json_value(value)] for name, value in pairs if name != names.ID]


def _json_value(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def headers_of(row_id: uuid.UUID, stored: str | None) -> list[tuple[str, bytes | None]]:
    """Return a record's headers: those of the row, and its id as ``wc-id``.

    Raises ValueError for a format that ``Outbox`` does not write.
    """
    record_id = (names.ID, str(row_id).encode())
    if not stored:
        return [record_id]
    match json.loads(stored):
        case None:
            return [record_id]
        case [*pairs]:
            return [*map(_header_of, pairs), record_id]
        case _:
            raise ValueError(_NO_PAIRS)


def _header_of(pair: Any) -> tuple[str, bytes | None]:
    match pair:
        case [str(name), str(value)]:
            return name, value.encode()
        case [str(name), None]:
            return name, None
        case [str(name), {"base64": str(value), **rest}] if not rest:
            return name, base64.b64decode(value, validate=True)
        case _:
            raise ValueError(_NO_PAIRS)


_USUAL: Final = {(key, payload) for key in (bytes, type(None)) for payload in (bytes, type(None))}
"""The types of nearly all keys and payloads."""


def fault_of(topic: Any, key: Any, payload: Any, partition: Any, timestamp: Any) -> str | None:
    """Return why the values are not a valid record; None for those that ``Outbox`` writes."""
    kinds = type(key), type(payload)
    if partition is timestamp is None and kinds in _USUAL and type(topic) is str:
        return None if _is_topic(topic) else f"{topic!r} is not a valid topic name"
    # SQLite columns accept any type.
    if not isinstance(topic, str) or not _is_topic(topic):
        return f"{topic!r} is not a valid topic name"
    if not isinstance(key, bytes | None) or not isinstance(payload, bytes | None):
        return "key and payload must be bytes"
    if not isinstance(partition, int | None) or (partition is not None and partition < 0):
        return f"{partition!r} is not a valid partition"
    if not isinstance(timestamp, int | None) or (timestamp is not None and timestamp < 0):
        return f"{timestamp!r} is not a valid timestamp in milliseconds"
    return None


@lru_cache(10_000)
def _is_topic(name: str) -> bool:
    return re.fullmatch(_TOPIC, name) is not None and name not in {".", ".."}


def available_at(delay: Delay | None, deliver_at: datetime | None) -> datetime | None:
    """Return when a row may be sent, in UTC; None for now. Raises TypeError and ValueError."""
    if deliver_at is not None:
        if delay is not None:
            raise ValueError("Outbox: delay and deliver_at are mutually exclusive")
        if deliver_at.tzinfo is None:
            raise ValueError("Outbox: deliver_at needs a time zone")
        return deliver_at.astimezone(UTC)
    if delay is None:
        return None
    try:
        wait = parse_duration(delay) if isinstance(delay, str) else delay
    except UnitError as error:
        raise ValueError(f"Outbox: delay {delay!r} {error}") from None
    wait = wait if isinstance(wait, timedelta) else timedelta(seconds=wait)
    if wait < timedelta(0):
        raise ValueError(f"Outbox: delay must not be negative: {delay!r}")
    return datetime.now(UTC) + wait


def ttl_s(ttl: str | float | None) -> float | None:
    """Return a time to live in seconds; raise ValueError for an invalid text."""
    if not isinstance(ttl, str):
        return ttl
    try:
        return parse_duration(ttl)
    except UnitError as error:
        raise ValueError(f"Outbox: ttl {ttl!r} {error}") from None


def text_of(key: bytes | None) -> str:
    """Return a key in the form of its column for people."""
    return (key or b"").decode("utf-8", "backslashreplace").replace("\x00", "\\x00")


def with_parent(
    pairs: tuple[tuple[str, bytes | None], ...],
) -> tuple[tuple[str, bytes | None], ...]:
    """Return a record's headers with the current span as parent, unless they have one."""
    parent = traceparent.current()
    if parent is None or any(name == traceparent.HEADER for name, _ in pairs):
        return pairs
    return (*pairs, (traceparent.HEADER, parent.encode()))
