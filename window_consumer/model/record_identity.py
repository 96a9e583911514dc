"""A record's id and first delivery: the same on every hop.

The only rules for ``wc-id`` and ``wc-orig-*``, used by all code that writes copies, counts, traces
or shows a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from window_consumer.model import headers as names
from window_consumer.model.header_values import count

MAX_ID_BYTES = 300
"""Fits in a database index, and is longer than any realistic id."""

Pairs = Sequence[tuple[str, bytes | None]]


class RecordOrigin(NamedTuple):
    """Where a record was first delivered from; as text ``topic/partition/offset``."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def given_id(headers: Pairs | None) -> bytes | None:
    """Return the id that a record carries: its last ``wc-id``; None if missing or empty.

    The framework wrote it on a copy, the producer on any other record.
    """
    return dict(headers or ()).get(names.ID) or None


def origin_in(headers: Mapping[str, bytes | None]) -> RecordOrigin | None:
    """Return the origin in ``wc-orig-*``; None if one of them is missing or unreadable.

    They count only on copies of the group's own ladder.
    """
    topic = headers.get(names.ORIGINAL_TOPIC)
    partition = count(headers.get(names.ORIGINAL_PARTITION))
    offset = count(headers.get(names.ORIGINAL_OFFSET))
    if topic is None or partition is None or offset is None:
        return None
    return RecordOrigin(topic.decode("utf-8", "replace"), partition, offset)


def id_text(record_id: bytes) -> str:
    r"""Return an id as text: ``sha256:`` and its digest if it is long or holds a NUL.

    Databases and headers accept it unchanged. Bytes outside UTF-8 become ``\xff``, so that two ids
    still differ.
    """
    if len(record_id) > MAX_ID_BYTES or b"\x00" in record_id:
        return f"sha256:{sha256(record_id).hexdigest()}"
    return record_id.decode("utf-8", "backslashreplace")
