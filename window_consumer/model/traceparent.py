"""The header ``traceparent``: which trace a record belongs to, as its producer has written it.

Format: https://www.w3.org/TR/trace-context/. Copies carry the header along like any of the user's
own, so that a record stays in one trace on all of its way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from window_consumer.model.record import Message

HEADER: Final = "traceparent"

_FORM: Final = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)
_SAMPLED: Final = frozenset({b"1", b"3", b"5", b"7", b"9", b"b", b"d", b"f"})


class TraceParent(NamedTuple):
    """The span that a record was sent by."""

    trace_id: int
    span_id: int
    sampled: bool
    """The producer records its trace."""


def read(value: bytes | None) -> TraceParent | None:
    """Return what a header's value says, None where it is none or says nothing valid."""
    found = None if value is None else _FORM.fullmatch(value)
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return None  # only later versions than the first may have more behind the flags
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    return TraceParent(trace_id, span_id, bool(int(found[4], 16) & 1))


def value_of(headers: Sequence[tuple[str, bytes | None]] | None) -> bytes | None:
    """Return the header's value, the last one where there are several; None where it is missing."""
    return dict(headers).get(HEADER) if headers else None


def of_message(message: Message) -> TraceParent | None:
    """Return which span a record was sent by; None where it does not say so."""
    return read(value_of(message.headers()))


def may_be_sampled(value: bytes | None) -> bool:
    """Tell by the last digit of the flags whether it is worth the time to read a value."""
    return value is not None and value[54:55] in _SAMPLED
