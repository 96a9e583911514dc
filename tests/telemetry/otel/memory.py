"""A provider of the SDK whose spans stay in memory, and records for spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, Sampler

from tests.engine.support import Note
from tests.kernel import error_reports
from window_consumer.metrics.otel.call_spans import OtelCallSpans
from window_consumer.metrics.otel.providers import Ids, bound_of
from window_consumer.metrics.otel.spans import SpanBudget, SpanCounts, Spans
from window_consumer.metrics.otel.trace_ids import Traces
from window_consumer.model.copy_headers import attempts_before
from window_consumer.model.headers import ORIGINAL_OFFSET, ORIGINAL_PARTITION, ORIGINAL_TOPIC
from window_consumer.model.record import Call, Record

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331


def sent(*, sampled: bool, trace: int = TRACE, span: int = SPAN) -> list[tuple[str, bytes]]:
    """Return the headers of a producer in a trace."""
    return [("other", b"x"), ("traceparent", f"00-{trace:032x}-{span:016x}-0{sampled:d}".encode())]


SAMPLED, UNSAMPLED = sent(sampled=True), sent(sampled=False)


def record(offset: int = 0, attempt: int = 1, **fields: Any) -> Record:
    return Record.of(Note(offset, **fields), Call(attempt))


def copy_of(offset: int, **fields: Any) -> Record:
    """Return a copy, somewhere in a retry topic, of the record of this offset."""
    headers = [
        *fields.pop("headers", []),
        (ORIGINAL_TOPIC, b"orders"),
        (ORIGINAL_PARTITION, b"0"),
        (ORIGINAL_OFFSET, b"%d" % offset),
    ]
    note = Note(offset + 1000, topic="shop.orders.retry.1s", headers=headers, **fields)
    return Record.of(note, Call(1, before=attempts_before))


class Memory:
    """Keeps the spans of one worker."""

    def __init__(
        self,
        ratio: float = 0.0,
        sampler: Sampler | None = None,
        per_second: int = 1000,
        redact: Callable[[str], str] | None = None,
    ):
        ids = Ids()
        provider = TracerProvider(sampler, shutdown_on_exit=False, id_generator=ids)
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))

        def keeps(trace_id: int) -> bool:
            result = provider.sampler.should_sample(None, trace_id, "x")
            return result.decision is Decision.RECORD_AND_SAMPLE

        self.counts = SpanCounts()
        self.now = 0.5
        self.budget = SpanBudget(per_second, self.counts, lambda: self.now)
        self.spans = Spans(
            provider.get_tracer("tests"),
            Traces("shop", ratio, keeps),
            {"window_consumer.worker": "charge"},
            ids.given,
            bound_of(provider.sampler),
        )
        self.faults = error_reports(redact)
        self.calls = OtelCallSpans(self.spans, self.budget, self.faults.fault)

    @property
    def ended(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()


def about(span: ReadableSpan) -> Mapping[str, Any]:
    """Return a span's attributes by the part of their names after the last dot."""
    pairs = (span.attributes or {}).items()
    return MappingProxyType({name.rpartition(".")[2]: value for name, value in pairs})


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)
