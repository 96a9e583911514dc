"""Spans of one worker: their attributes, their parents, and how many are allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from random import getrandbits
from time import monotonic
from typing import Any, Final

from attrs import define, field, frozen
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    set_span_in_context,
)

from window_consumer.metrics.otel import attributes as names
from window_consumer.metrics.otel.attributes import propagator
from window_consumer.metrics.otel.trace_ids import SpanParent, Traces
from window_consumer.model import traceparent
from window_consumer.model.fault import Fault
from window_consumer.model.record import Message

MOST_LINKS: Final = 128
"""The number that a span keeps under OpenTelemetry's default limits."""

_BURST_S: Final = 0.25
"""The burst of spans, in seconds' worth; a larger one would delay handlers by milliseconds."""

RANDOM: Final = TraceFlags(0x02)
"""Marks a trace's id as random; W3C's level 2, which not every version of the API defines."""

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)

Attributes = Mapping[str, Any]

GiveIds = Callable[[SpanContext], AbstractContextManager[None]]
"""Gives these ids to the next span on this thread that begins without a parent."""


def no_ids(_context: SpanContext) -> AbstractContextManager[None]:
    """Let the provider choose the ids."""
    return nullcontext()


@define
class SpanCounts:
    """The figures of a worker's spans. Written without a lock; under load a few may be missed."""

    made: int = 0
    left_out: int = 0
    """Omitted because of ``spans_per_second``."""
    lost: int = 0
    """Not created because of an error or overload."""


@define
class SpanBudget:
    """A limit of spans per second. Any thread may ask; a few too many may pass."""

    per_second: int
    counts: SpanCounts
    _now: Callable[[], float] = monotonic
    _left: float = field(init=False)
    _at: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._left, self._at = self._most, self._now()

    @property
    def _most(self) -> float:
        return max(1.0, self.per_second * _BURST_S)

    def is_spent(self) -> bool:
        """Return whether no more spans are allowed now; the caller then omits its span."""
        now = self._now()
        self._left = min(self._most, self._left + (now - self._at) * self.per_second)
        self._at = now
        if self._left >= 1.0:
            return False
        self.counts.left_out += 1
        return True

    def spend(self) -> None:
        """Charge one created span."""
        self._left -= 1.0
        self.counts.made += 1


@frozen
class Spans:
    """Begins the spans of one worker, with their common attributes."""

    tracer: Tracer
    traces: Traces
    about: Attributes
    """The attributes of all its spans."""
    give_ids: GiveIds = no_ids
    bound: int | None = None
    """A new trace is recorded only if the lower half of its id is below this; others need not
    begin.

    None if the sampler does not decide by id, or the provider takes no ids from us.
    """

    def of_record(
        self, message: Message, place: SpanParent, *, is_first: bool, start_ns: int | None = None
    ) -> tuple[Span, Context]:
        """Begin the span of a call; return it with the context in which the call runs.

        ``is_first``: no span can have begun for the record before.
        """
        topic = message.topic()
        attributes: dict[str, Any] = {
            **self.about,
            names.OPERATION: "process",
            names.OPERATION_TYPE: "process",
            names.DESTINATION: topic,
            names.PARTITION: str(message.partition()),
            names.OFFSET: message.offset(),
            names.BODY_SIZE: len(message),
        }
        if message.value() is None:
            attributes[names.TOMBSTONE] = True
        name = f"process {topic}"
        if place.is_own and is_first:
            with self.give_ids(place.parent):
                context = Context()
                span = self.tracer.start_span(
                    name, context, SpanKind.CONSUMER, attributes, start_time=start_ns
                )
        else:
            context = context_below(place, message)
            span = self.tracer.start_span(
                name, context, SpanKind.CONSUMER, attributes, start_time=start_ns
            )
        return span, set_span_in_context(span, context)

    def of_many(
        self,
        messages: Sequence[Message],
        count: int,
        more: Attributes,
        start_ns: int | None = None,
        trace_id: int = 0,
    ) -> Span:
        """Begin the span of a slice or batch, which is the root of its own trace.

        ``trace_id`` is the id of that trace; without it the provider chooses one. ``messages`` are
        the messages of the ``count`` records that can still be read. Their producers' spans are
        looked up only if the span is recorded.
        """
        first, last = messages[0], messages[-1]
        topic = first.topic()
        attributes = {
            **self.about,
            names.OPERATION: "process",
            names.OPERATION_TYPE: "process",
            names.DESTINATION: topic,
            names.PARTITION: str(first.partition()),
            names.OFFSET: first.offset(),
            names.LAST_OFFSET: last.offset(),
            names.MESSAGE_COUNT: count,
            **more,
        }
        ids = nullcontext() if not trace_id else self.give_ids(_new_ids(trace_id))
        with ids:
            span = self.tracer.start_span(
                f"process {topic}", Context(), SpanKind.CONSUMER, attributes, start_time=start_ns
            )
        if span.is_recording():
            link(span, messages)
        return span


def context_below(place: SpanParent, message: Message | None = None) -> Context:
    """Return a context whose current span is a record's parent, with the producer's baggage."""
    context = Context()
    if message is not None and not place.is_own:
        context = propagator().extract(dict(_texts(message.headers() or ())), context)
        found = get_current_span(context).get_span_context()
        if found.span_id == place.parent.span_id and found.trace_flags.sampled:
            return context  # with the trace's state
    return set_span_in_context(NonRecordingSpan(place.parent), context)


def link(span: Span, messages: Iterable[Message]) -> None:
    """Link a span to the recorded spans of the records' producers."""
    parents = _sampled_parents(messages)
    linked = left_out = 0
    for parent in parents:
        if linked < MOST_LINKS:
            linked += 1
            span.add_link(parent)
        else:
            left_out += 1
    if left_out:
        span.set_attribute(names.LINKS_LEFT_OUT, left_out)


def links_of(place: SpanParent | None, message: Message | None) -> list[Link]:
    """Return links to a record's producer for a span that is not the producer's child."""
    if place is not None or message is None:
        return []
    parent = traceparent.of_message(message)
    return [] if parent is None else [Link(_context_of(parent))]


def fail(span: Span, fault: Fault, at_ns: int | None = None) -> None:
    """Mark a span's call as failed, with the same text as the log."""
    exception = {
        "exception.type": fault.error_class,
        "exception.message": fault.message,
        "exception.stacktrace": fault.stack,
    }
    span.add_event("exception", exception, at_ns)
    span.set_attribute(names.ERROR_TYPE, fault.error_class)
    span.set_status(Status(StatusCode.ERROR, fault.message))


def _sampled_parents(messages: Iterable[Message]) -> Iterator[SpanContext]:
    for message in messages:
        value = traceparent.value_of(message.headers())
        if traceparent.may_be_sampled(value):
            parent = traceparent.read(value)
            if parent is not None:
                yield _context_of(parent)


def _new_ids(trace_id: int) -> SpanContext:
    return SpanContext(trace_id, getrandbits(64) or 1, is_remote=False, trace_flags=RANDOM)


def _context_of(parent: traceparent.TraceParent) -> SpanContext:
    flags = _SAMPLED if parent.sampled else TraceFlags()
    return SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)


def _texts(headers: Sequence[tuple[str, bytes | None]]) -> Iterator[tuple[str, str]]:
    """Return the text headers; of equal names the last one counts."""
    for name, value in headers:
        if value is not None:
            yield name.lower(), value.decode("utf-8", "replace")
