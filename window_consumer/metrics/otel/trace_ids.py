"""The trace of each record, and whether its calls get their own spans.

A record whose producer was in a trace stays in that trace, as a child of the producer's span,
because copies keep the header. Other records get a trace whose ids are derived from their first
delivery, so every process computes the same ids for the record and its copies.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from opentelemetry.trace import SpanContext, TraceFlags

from window_consumer.model import traceparent
from window_consumer.model.copy_headers import of_copy
from window_consumer.model.record import Message

_RANGE: Final = 1 << 64
LOW: Final = _RANGE - 1
"""The half of a trace's id by which samplers decide."""

# Multiples of these spread as evenly over the range as possible, however many there are (Knuth
# 6.4).
_OF_OFFSETS: Final = 0x9E3779B97F4A7C15
_OF_PARTITIONS: Final = 0xD1B54A32D192ED03

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)

Keeps = Callable[[int], bool]
"""Returns whether the sampler records a trace with this id."""


class SpanParent(NamedTuple):
    """The parent of a record's spans."""

    parent: SpanContext
    is_own: bool
    """Whether no producer's span exists; the record's first call then has the parent's own ids."""


class Traces:
    """Chooses records. Any thread may ask."""

    def __init__(self, group: str, ratio: float, keeps: Keeps = lambda _trace_id: True):
        """``ratio`` is the share of records that are chosen without a sampled producer."""
        self._group = group
        self._bound = round(ratio * _RANGE)
        self._keeps = keeps

    @property
    def only_sampled(self) -> bool:
        """Whether only records whose producer's trace is sampled are ever chosen."""
        return not self._bound

    def may_want(self, message: Message, *, is_copy: bool) -> bool:
        """Return, faster than ``of``, whether a record may be chosen; most are not."""
        headers = message.headers()
        value = dict(headers).get(traceparent.HEADER) if headers else None
        if not self._bound or traceparent.may_be_sampled(value):
            return traceparent.may_be_sampled(value)
        return (
            value is not None
            or is_copy
            or _low_of(message.partition(), message.offset()) < self._bound
        )

    def of(self, message: Message, *, is_copy: bool) -> SpanParent | None:
        """Return the parent of a record's spans, or None if it gets none."""
        headers = message.headers()
        value = dict(headers).get(traceparent.HEADER) if headers else None
        if not (self._bound or traceparent.may_be_sampled(value)):
            return None
        parent = None if value is None else traceparent.read(value)
        if parent is None:
            return self._own(message, is_copy=is_copy) if self._bound else None
        trace_id, span_id, sampled = parent
        if not sampled and not self._chooses(trace_id):
            return None
        return SpanParent(
            SpanContext(trace_id, span_id, is_remote=True, trace_flags=_SAMPLED), False
        )

    def _own(self, message: Message, *, is_copy: bool) -> SpanParent | None:
        if is_copy:
            hop = of_copy(message)
            (topic, partition), offset = hop.origin, hop.offset
        else:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
        low = _low_of(partition, offset)
        if low >= self._bound:
            return None
        name = f"{self._group}/{topic}/{partition}/{offset}".encode()
        digest = blake2b(name, digest_size=16).digest()
        trace_id = int.from_bytes(digest[:8]) << 64 | low
        if not trace_id or not self._keeps(trace_id):
            return None
        span_id = int.from_bytes(digest[8:]) or 1
        return SpanParent(
            SpanContext(trace_id, span_id, is_remote=True, trace_flags=_SAMPLED), True
        )

    def _chooses(self, trace_id: int) -> bool:
        return trace_id & LOW < self._bound and self._keeps(trace_id)


def _low_of(partition: int, offset: int) -> int:
    """Return the lower half of the id of a record's own trace."""
    return (offset * _OF_OFFSETS + partition * _OF_PARTITIONS + 1) & LOW
