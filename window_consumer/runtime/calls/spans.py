"""The outermost layer around a worker's handlers: spans around calls.

Telemetry defines the spans. This layer only makes a span current while the handler runs, and
reports the call's end to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from window_consumer.model import traceparent
from window_consumer.model.record import Record
from window_consumer.runtime.calls.layer import CallForm, CallSite, CallStep, ChildLayer, LayerPlace
from window_consumer.runtime.calls.steps import Called
from window_consumer.runtime.error_report import ErrorReports

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py


class CallSpans(Protocol):
    """Makes the spans of calls. Any slot may call it; it never raises."""

    only_sampled: bool
    """Whether only records of sampled traces have spans, so most need no request."""

    def of_record(self, record: Record) -> CallStep | None:
        """Return the span of a call that is about to begin, or None."""

    def of_batch(self, records: list[Record]) -> CallStep | None:
        """Return the span of a batch handler's call, or None."""


@frozen
class SpansLayer:
    """Surrounds calls with their spans, if they have one."""

    spans_of: Callable[[ErrorReports], CallSpans]
    """Creates the spans, given the function that describes exceptions."""
    in_children: ChildLayer | None = None
    place: LayerPlace = LayerPlace.SPANS

    def refuse(self, form: CallForm) -> None:
        """Refuse nothing."""

    def wrap(self, call: Called, site: CallSite) -> Called:
        """See CallLayer."""
        return spanned(call, self.spans_of(site.tools.faults), site.form)


def spanned(call: Called, spans: CallSpans, form: CallForm) -> Called:
    """Return a call with a span if ``spans`` creates one."""
    if form.batches:
        return form.within(spans.of_batch, call)
    if not spans.only_sampled:
        return form.within(spans.of_record, call)
    begin, around = spans.of_record, form.entered
    may_be_sampled = traceparent.may_be_sampled

    def call_sampled(record: Record) -> object:
        headers = record._message.headers()  # noqa: SLF001 - the layers belong to the slots' loop
        if not headers or not may_be_sampled(dict(headers).get(traceparent.HEADER)):
            return call(record)
        span = begin(record)
        return call(record) if span is None else around(span, call, record)

    return call_sampled
