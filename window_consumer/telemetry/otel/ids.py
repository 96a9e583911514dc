"""The ids of spans: random, but where a trace's ids follow from its record."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanContext

from window_consumer.telemetry.otel.spans import RANDOM


class Ids(RandomIdGenerator):
    """Gives random ids, or those that were given to it on this thread."""

    def __init__(self) -> None:
        self._given = threading.local()

    @contextmanager
    def given(self, context: SpanContext) -> Iterator[None]:
        """Let a span that begins a trace within the block have these ids."""
        self._given.context = context
        try:
            yield
        finally:
            self._given.context = None

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        context: SpanContext | None = getattr(self._given, "context", None)
        return super().generate_trace_id() if context is None else context.trace_id

    def is_trace_id_random(self) -> bool:
        """Tell whether a new trace's id is random; one that follows from a record is not."""
        context: SpanContext | None = getattr(self._given, "context", None)
        return context is None or bool(context.trace_flags & RANDOM)

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        context: SpanContext | None = getattr(self._given, "context", None)
        return super().generate_span_id() if context is None else context.span_id
