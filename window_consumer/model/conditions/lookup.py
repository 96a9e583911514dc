"""The fields of conditions on records, and their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from window_consumer.model import headers as names
from window_consumer.model.conditions.expressions import FieldKind
from window_consumer.model.header_values import count
from window_consumer.model.record import Record

RECORD_FIELDS: Final[Mapping[str, FieldKind]] = MappingProxyType(
    {"key": FieldKind.TEXT, "timestamp": FieldKind.TIME, "topic": FieldKind.TEXT}
)
"""The fields of conditions on records; ``header('x')`` is always available."""

IsCopy = Callable[[str], bool]
"""Returns whether the records of a topic are copies that this group wrote."""

WallMs = Callable[[], int]
"""Returns milliseconds since 1970."""


class RecordLookup:
    """One record, for expressions; a copy has the values of its first delivery."""

    __slots__ = ("_is_copy", "_record", "_wall_ms")

    def __init__(self, record: Record, is_copy: IsCopy, wall_ms: WallMs):
        self._record = record
        self._is_copy = is_copy
        self._wall_ms = wall_ms

    def field(self, name: str) -> str | int | float | None:
        """Return one of ``RECORD_FIELDS``."""
        if name == "key":
            return as_text(self._record.key)
        if name == "timestamp":
            return first_timestamp(self._record, self._is_copy)
        return first_topic(self._record, self._is_copy)

    def header(self, name: str) -> str | None:
        """Return the last value of a header as text."""
        return as_text(self._record.header(name))

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970."""
        return self._wall_ms()


def as_text(value: bytes | None) -> str | None:
    r"""Return bytes as text; bytes outside UTF-8 become ``\xff``, so that values still differ."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def first_timestamp(record: Record, is_copy: IsCopy) -> int | None:
    """Return the record's own time: a copy in a retry topic has the time of its writing."""
    if is_copy(record.topic):
        return count(record.header(names.ORIGINAL_TIMESTAMP))
    return record.timestamp


def first_topic(record: Record, is_copy: IsCopy) -> str:
    """Return the topic that the record was first delivered from."""
    topic = record.topic
    if is_copy(topic):
        return as_text(record.header(names.ORIGINAL_TOPIC)) or topic
    return topic
