"""Spans around handler calls: current while the handler runs, in whichever slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import time_ns

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, set_span_in_context

from window_consumer.metrics.otel import attributes as names
from window_consumer.metrics.otel.attributes import propagator
from window_consumer.metrics.otel.spans import MOST_LINKS, SpanBudget, Spans, fail
from window_consumer.metrics.otel.trace_ids import SpanParent
from window_consumer.model import traceparent
from window_consumer.model.errors import Skip, meant_by
from window_consumer.model.fault import Fault
from window_consumer.model.produce import Produce, results_of
from window_consumer.model.record import Message, Record
from window_consumer.runtime.calls.batch_calls import HeldResults, failed_of

Describe = Callable[[BaseException, Sequence[Message]], Fault]


class OtelCallSpans:
    """Creates the spans of one worker's calls, see ``runtime.calls.spans``. Any slot may call."""

    def __init__(self, spans: Spans, budget: SpanBudget, describe: Describe):
        """``describe`` puts an exception into words without secrets.

        It leaves the exception unchanged, and also gets the records of the call.
        """
        self.spans = spans
        self.budget = budget
        self.describe = describe
        self.only_sampled = spans.traces.only_sampled

    def of_record(self, record: Record) -> _RecordSpan | None:
        """Return the span of a call, or None for most calls."""
        try:
            message = record._message  # noqa: SLF001 - as all layers do
            traces, is_copy = self.spans.traces, record.is_copy
            if not traces.may_want(message, is_copy=is_copy) or self.budget.is_spent():
                return None
            place = traces.of(message, is_copy=is_copy)
            if place is None:
                return None
            is_first = record.attempt == 1 and not record.is_copy
            span, context = self.spans.of_record(message, place, is_first=is_first)
            if not span.is_recording():
                span.end()
                return None
            self.budget.spend()
            span.set_attribute(names.ATTEMPT, record.attempt)
            return _RecordSpan(self, span, context, record)
        except Exception:
            self.budget.counts.lost += 1
            return None

    def of_batch(self, records: list[Record]) -> _BatchSpan | None:
        """Return the span of a batch handler's call."""
        try:
            if self.budget.is_spent():
                return None
            messages = [record._message for record in records]  # noqa: SLF001 - as all layers do
            more = {names.ATTEMPT: records[0].attempt}
            is_copy = records[0].is_copy
            wanted = [
                (record, place)
                for record, message in zip(records, messages, strict=True)
                if (place := self.spans.traces.of(message, is_copy=is_copy)) is not None
            ]
            span = self.spans.of_many(messages, len(messages), more)
            if not span.is_recording() and not wanted:
                span.end()
                return None
            self.budget.spend()
            return _BatchSpan(self, span, records.copy(), wanted)
        except Exception:
            self.budget.counts.lost += 1
            return None


class _CallSpan:
    """The common part of both kinds. Owner: the slot."""

    def __init__(self, maker: OtelCallSpans, span: Span, context: Context):
        self._maker = maker
        self._span = span
        self._context = context
        self._token: object = None

    def enter(self) -> None:
        """Make this the current span."""
        try:
            self._token = attach(self._context)
        except Exception:
            self._maker.budget.counts.lost += 1

    def carry(self, returned: object) -> object:
        """Return it with the span's headers in the records to produce.

        A ``traceparent`` that such a record already has is kept.
        """
        try:
            results = results_of(returned)
            if results:
                found: dict[str, str] = {}
                propagator().inject(found, self._context)
                return [_with_headers(each, found) for each in results]
        except TypeError:
            pass  # the slot reports the error
        except Exception:
            self._maker.budget.counts.lost += 1
        return returned

    def leave(self, error: BaseException | None) -> None:
        """Record how the call ended, and end the span."""
        try:
            if self._token is not None:
                detach(self._token)  # type: ignore[arg-type] # the result of attach
            self._end(error)
        except Exception:
            self._maker.budget.counts.lost += 1

    def _end(self, error: BaseException | None) -> None:
        raise NotImplementedError


class _RecordSpan(_CallSpan):
    def __init__(self, maker: OtelCallSpans, span: Span, context: Context, record: Record):
        super().__init__(maker, span, context)
        self._call = record._call  # noqa: SLF001 - the record may be reused
        self._message: Message = record._message  # noqa: SLF001 - likewise

    def _end(self, error: BaseException | None) -> None:
        span = self._span
        if self._call.handler:
            span.set_attribute(names.HANDLER, self._call.handler)
        if error is not None and isinstance(meant_by(error), Skip):
            span.set_attribute(names.OUTCOME, "skipped")
        elif error is not None:
            fail(span, self._maker.describe(error, (self._message,)))
        span.end()


class _BatchSpan(_CallSpan):
    """The span of a batch and, at its end, the spans of records with their own.

    A call has one current span: the batch's. The records' spans have the same length, each in the
    trace of its producer.
    """

    def __init__(
        self,
        maker: OtelCallSpans,
        span: Span,
        records: Sequence[Record],
        wanted: Sequence[tuple[Record, SpanParent]],
    ):
        super().__init__(maker, span, set_span_in_context(span, Context()))
        self._records = records
        self._wanted = wanted
        self._start_ns = time_ns()

    def _end(self, error: BaseException | None) -> None:
        failed = {} if error is None else dict(_failures(error, self._records))
        if failed:
            self._span.set_attribute(names.FAILED, len(failed))
        if error is not None and len(failed) == len(self._records):
            messages = [record._message for record in self._records]  # noqa: SLF001 - as all layers do
            fail(self._span, self._maker.describe(error, messages))
        self._span.end()
        faults = self._faults(failed)
        for record, place in self._wanted[:MOST_LINKS]:
            if self._maker.budget.is_spent():
                break
            self._of_record(record, place, faults.get(id(failed.get(id(record)))))

    def _faults(self, failed: Mapping[int, BaseException]) -> Mapping[int, Fault]:
        """Return the described reasons by id; each may quote all of its records."""
        reasons = {id(reason): reason for reason in failed.values()}
        quoted: dict[int, list[Message]] = {each: [] for each in reasons}
        for record in self._records:
            if id(record) in failed:
                quoted[id(failed[id(record)])].append(record._message)  # noqa: SLF001 - as all layers do
        wanted = {id(failed.get(id(record))) for record, _ in self._wanted[:MOST_LINKS]}
        return {
            each: self._maker.describe(reason, quoted[each])
            for each, reason in reasons.items()
            if each in wanted
        }

    def _of_record(self, record: Record, place: SpanParent, fault: Fault | None) -> None:
        message: Message = record._message  # noqa: SLF001 - as all layers do
        spans = self._maker.spans
        is_first = record.attempt == 1 and not record.is_copy
        span, _ = spans.of_record(message, place, is_first=is_first, start_ns=self._start_ns)
        if span.is_recording():
            self._maker.budget.spend()
            span.set_attribute(names.ATTEMPT, record.attempt)
            span.add_link(self._span.get_span_context())
            if fault is not None:
                fail(span, fault)
        span.end()


def _with_headers(result: Produce, more: Mapping[str, str]) -> Produce:
    if any(name == traceparent.HEADER for name, _ in result.headers):
        return result
    return Produce(
        result.topic,
        result.key,
        result.value,
        headers=(*result.headers, *more.items()),
        partition=result.partition,
        timestamp=result.timestamp,
    )


def _failures(error: BaseException, records: Sequence[Record]) -> list[tuple[int, BaseException]]:
    """Return the failed records by id; skipped or held records are not failures."""
    return [
        (id(record), reason)
        for record, reason in failed_of(error, records)
        if not isinstance(reason, Skip | HeldResults)
    ]
