"""What a record is called, and where it was delivered from first: the same on every hop.

The one rule for ``wc-id`` and ``wc-orig-*``: whoever writes copies, counts, traces or shows a
record asks here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from window_consumer.model import headers as names
from window_consumer.model.header_values import count

Pairs = Sequence[tuple[str, bytes | None]]


class RecordOrigin(NamedTuple):
    """Where a record was delivered from first; as text ``topic/partition/offset``."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def given_id(headers: Pairs | None) -> bytes | None:
    """Return the id that a record carries: its last ``wc-id``, None where that is empty.

    On a copy the framework has written it, on any other record its producer.
    """
    return dict(headers or ()).get(names.ID) or None


def origin_in(headers: Mapping[str, bytes | None]) -> RecordOrigin | None:
    """Return what ``wc-orig-*`` say; None where one of them is missing or cannot be read.

    They count only on copies of the group's own ladder.
    """
    topic = headers.get(names.ORIGINAL_TOPIC)
    partition = count(headers.get(names.ORIGINAL_PARTITION))
    offset = count(headers.get(names.ORIGINAL_OFFSET))
    if topic is None or partition is None or offset is None:
        return None
    return RecordOrigin(topic.decode("utf-8", "replace"), partition, offset)


def id_text(record_id: bytes) -> str:
    r"""Return an id as text; what is not UTF-8 becomes ``\xff``, so that two ids still differ."""
    return record_id.decode("utf-8", "backslashreplace")
