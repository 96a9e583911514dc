"""The outermost layer around a worker's handlers: spans for the calls for which somebody wants one.

What a span is belongs to telemetry. Here it is made current where the handler runs, and hears how
the call has ended; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Protocol

from window_consumer.model import traceparent
from window_consumer.model.record import Record

__handler_layer__ = True  # its frames are no part of a failure, see error_report.py

Called = Callable[[Any], Any]
"""A handler of whatever kind: it gets a record, or a list of them."""


class CallSpan(Protocol):
    """The span of one call. Its methods do not raise."""

    def enter(self) -> None:
        """Make it the current one, in the context in which the call runs."""

    def carry(self, returned: object) -> object:
        """Return what the handler has returned, with the trace in what is to be produced."""

    def leave(self, error: BaseException | None) -> None:
        """Hear how the call has ended, in the same context."""


class CallSpans(Protocol):
    """Who makes spans of calls. Any slot may ask; nothing is raised."""

    only_sampled: bool
    """A record has one only if its producer's trace is sampled: most need not be asked about."""

    def of_record(self, record: Record) -> CallSpan | None:
        """Return the span of a call that is about to begin, None for none."""

    def of_batch(self, records: list[Record]) -> CallSpan | None:
        """Return the span of the call of a batch handler, None for none."""


def spanned(handler: Called, spans: CallSpans, *, batches: bool, coroutines: bool) -> Called:
    """Return a handler whose calls have spans, where ``spans`` wants them to."""
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
