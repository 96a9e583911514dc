"""The outermost layer around a worker's handlers: spans for the calls that have one.

Telemetry defines the spans. This layer makes a span current where the handler runs and reports the
call's end to it. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Protocol

from window_consumer.model import traceparent
from window_consumer.model.record import Record

__handler_layer__ = True  # its frames are no part of a failure, see error_report.py

Called = Callable[[Any], Any]
"""A handler of any kind: it gets a record, or a list of them."""


class CallSpan(Protocol):
    """The span of one call. Its methods do not raise."""

    def enter(self) -> None:
        """Make it the current span, in the context of the call."""

    def carry(self, returned: object) -> object:
        """Return the handler's result with the trace added to the records to produce."""

    def leave(self, error: BaseException | None) -> None:
        """Record the end of the call, in the same context."""


class CallSpans(Protocol):
    """Makes the spans of calls. Any slot may call it; it never raises."""

    only_sampled: bool
    """Whether only records of sampled traces have spans, so that most need no request."""

    def of_record(self, record: Record) -> CallSpan | None:
        """Return the span of a call that is about to begin, None for none."""

    def of_batch(self, records: list[Record]) -> CallSpan | None:
        """Return the span of a batch handler's call, None for none."""


def spanned(handler: Called, spans: CallSpans, *, batches: bool, coroutines: bool) -> Called:
    """Return a handler whose calls have spans, where ``spans`` makes one."""
    begin: Callable[[Any], CallSpan | None] = spans.of_batch if batches else spans.of_record
    around = _around_coroutine if coroutines else _around
    if batches or not spans.only_sampled:

        def call(given: Any) -> object:
            span = begin(given)
            return handler(given) if span is None else around(span, handler, given)

        return call

    may_be_sampled = traceparent.may_be_sampled

    def call_sampled(record: Record) -> object:
        headers = record._message.headers()  # noqa: SLF001 - the layers belong to the slots' loop
        if not headers or not may_be_sampled(dict(headers).get(traceparent.HEADER)):
            return handler(record)
        span = begin(record)
        return handler(record) if span is None else around(span, handler, record)

    return call_sampled


def _around(span: CallSpan, handler: Called, given: Any) -> object:
    span.enter()
    try:
        returned = handler(given)
    except BaseException as error:
        span.leave(error)
        raise
    if returned is not None:
        returned = span.carry(returned)
    span.leave(None)
    return returned


async def _around_coroutine(span: CallSpan, handler: Called, given: Any) -> object:
    span.enter()
    try:
        returned = handler(given)
        if isawaitable(returned):
            returned = await returned
    except BaseException as error:
        span.leave(error)
        raise
    if returned is not None:
        returned = span.carry(returned)
    span.leave(None)
    return returned
