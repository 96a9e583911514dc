"""Spans around the calls of handlers of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from tests.telemetry.otel.memory import (
    SAMPLED,
    SPAN,
    TRACE,
    Memory,
    about,
    copy_of,
    id_of,
    record,
    trace_of,
)
from window_consumer.model.errors import PartialFailure, Skip
from window_consumer.model.produce import Produce
from window_consumer.model.record import Record
from window_consumer.runtime.calls.layer import CallForm
from window_consumer.runtime.calls.spans import spanned

Handler = Callable[[Any], Any]


def called(memory: Memory, handler: Handler, given: Any) -> Any:
    """Call a handler as a slot does that has threads."""
    batches = isinstance(given, list)
    return spanned(handler, memory.calls, CallForm(batches=batches))(given)


def awaited(memory: Memory, handler: Callable[[Any], Awaitable[Any]], given: Any) -> Any:
    """Call a coroutine function as a slot on an event loop does."""
    batches = isinstance(given, list)
    call: Any = spanned(handler, memory.calls, CallForm(batches=batches, coroutines=True))

    async def run() -> Any:
        return await call(given)

    return asyncio.run(run())


def only(memory: Memory) -> ReadableSpan:
    (span,) = memory.ended
    return span


def current() -> int:
    return trace.get_current_span().get_span_context().span_id


def test_a_call_has_a_span_below_its_producers_which_is_current_meanwhile() -> None:
    memory, seen = Memory(), list[int]()

    def charge(order: Record) -> str:
        seen.append(current())
        order._call.handler = "charge"
        return "result"

    assert called(memory, charge, record(7, headers=SAMPLED)) == "result"
    span = only(memory)
    assert seen == [id_of(span)]
    assert current() == 0
    assert (span.name, span.kind, trace_of(span)) == ("process orders", SpanKind.CONSUMER, TRACE)
    assert span.parent is not None
    assert (span.parent.span_id, span.parent.is_remote) == (SPAN, True)
    assert dict(span.attributes or {}) == {
        "window_consumer.worker": "charge",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 7,
        "messaging.message.body.size": 10,
        "window_consumer.attempt": 1,
        "window_consumer.handler": "charge",
    }
    assert span.status.is_unset


def test_coroutines_have_their_span_in_their_own_context() -> None:
    memory, seen = Memory(), list[tuple[int, int]]()

    async def charge(_order: Record) -> str:
        before = current()
        await asyncio.sleep(0)
        seen.append((before, current()))
        return "result"

    assert awaited(memory, charge, record(headers=SAMPLED)) == "result"
    assert seen == [(id_of(only(memory)),) * 2]


def test_a_coroutine_that_is_cancelled_ends_its_span() -> None:
    memory = Memory()

    async def hang(_order: Record) -> None:
        await asyncio.Event().wait()

    call: Any = spanned(hang, memory.calls, CallForm(coroutines=True))

    async def run() -> None:
        task = asyncio.ensure_future(call(record(headers=SAMPLED)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert about(only(memory))["type"] == "asyncio.exceptions.CancelledError"


def test_a_failed_call_is_reported_in_the_words_of_the_log_and_raises_what_it_raised() -> None:
    memory = Memory(redact=lambda text: text.replace("4711", "<card>"))
    error = ValueError("unknown: 4711")

    def charge(_order: Record) -> None:
        raise error

    call = spanned(charge, memory.calls, CallForm())
    with pytest.raises(ValueError, match="4711") as raised:
        call(record(headers=SAMPLED))
    assert raised.value is error
    by_the_slot = memory.faults.failure(error).fault
    span = only(memory)
    assert not span.status.is_ok
    assert span.status.description == "unknown: <card>"
    (event,) = span.events
    reported = dict(event.attributes or {})
    assert (event.name, reported["exception.type"]) == ("exception", "ValueError")
    assert reported["exception.message"] == "unknown: <card>"
    assert reported["exception.stacktrace"] == by_the_slot.stack
    assert "in charge" in str(reported["exception.stacktrace"])
    assert "spanned" not in str(reported["exception.stacktrace"])
    assert (span.attributes or {})["error.type"] == "ValueError"


def test_who_skips_a_record_has_not_failed() -> None:
    memory = Memory()

    def charge(_order: Record) -> None:
        raise Skip

    with pytest.raises(Skip):
        called(memory, charge, record(headers=SAMPLED))
    span = only(memory)
    assert span.status.is_unset
    assert about(span)["outcome"] == "skipped"


def test_the_producers_baggage_is_there() -> None:
    seen: list[object] = []
    headers = [*SAMPLED, ("baggage", b"tenant=blue"), ("tracestate", b"v=1")]
    memory = Memory()
    called(
        memory, lambda _order: seen.append(baggage.get_baggage("tenant")), record(headers=headers)
    )
    assert seen == ["blue"]
    span = only(memory)
    assert span.context is not None
    assert span.context.trace_state.get("v") == "1"


def test_all_calls_of_a_record_without_a_producer_are_in_one_trace_that_has_a_root() -> None:
    memory = Memory(1.0)
    for each in (record(5), record(5, attempt=2), copy_of(5)):
        called(memory, lambda _order: None, each)
    first, *others = memory.ended
    assert first.parent is None
    assert {trace_of(span) for span in memory.ended} == {trace_of(first)}
    assert [span.parent and span.parent.span_id for span in others] == [id_of(first)] * 2


def test_a_record_that_nobody_wants_a_span_of_is_just_handled() -> None:
    memory, seen = Memory(), list[Record]()
    for each in (record(1), record(2, headers=[("x", b"y")])):
        called(memory, seen.append, each)
    assert [each.offset for each in seen] == [1, 2]
    assert not memory.ended


def test_beyond_so_many_a_second_spans_are_left_out_and_counted() -> None:
    memory, seen = Memory(per_second=12), list[Record]()
    for offset in range(5):
        called(memory, seen.append, record(offset, headers=SAMPLED))
    assert (len(seen), len(memory.ended)) == (5, 3)
    assert (memory.counts.made, memory.counts.left_out) == (3, 2)
    memory.now += 0.1  # one has come back
    for offset in range(2):
        called(memory, seen.append, record(offset, headers=SAMPLED))
    assert len(memory.ended) == 4
    memory.now += 60.0  # no more come back than may be made at once
    for offset in range(5):
        called(memory, seen.append, record(offset, headers=SAMPLED))
    assert len(memory.ended) == 7


def test_records_that_are_produced_go_on_in_the_trace_unless_they_say_otherwise() -> None:
    memory = Memory()
    own = Produce("invoices", b"k", b"v", headers={"traceparent": "mine"}, partition=3)
    plain = Produce("invoices", b"k", b"v", headers={"a": b"b"}, partition=3, timestamp=7)

    async def charge(_order: Record) -> list[Produce]:
        await asyncio.sleep(0)
        return [own, plain]

    answers = [
        called(memory, lambda _order: [own, plain], record(headers=SAMPLED)),
        awaited(memory, charge, record(headers=SAMPLED)),
        called(memory, lambda _orders: [own, plain], [record()]),
    ]
    for (kept, carried), span in zip(answers, memory.ended, strict=True):
        assert kept is own
        assert span.context is not None
        flags = span.context.trace_flags
        value = f"00-{trace_of(span):032x}-{id_of(span):016x}-{flags:02x}".encode()
        assert carried.headers == (("a", b"b"), ("traceparent", value))
        assert with_headers(carried, plain.headers) == plain


@pytest.mark.parametrize("returned", [None, "a row", [], [Produce("invoices"), 1]])
def test_what_is_nothing_to_produce_comes_out_as_it_is(returned: object) -> None:
    memory = Memory()
    assert called(memory, lambda _order: returned, record(headers=SAMPLED)) is returned
    assert memory.counts.lost == 0


def with_headers(result: Produce, headers: Any) -> Produce:
    more: Any = {"partition": result.partition, "timestamp": result.timestamp}
    return Produce(result.topic, result.key, result.value, headers=headers, **more)


def test_a_batch_has_a_span_that_is_current_and_links_to_the_producers() -> None:
    memory, seen = Memory(), list[int]()
    orders = [record(1, headers=SAMPLED), record(2), record(3, headers=SAMPLED)]
    assert called(memory, lambda _orders: seen.append(current()), orders) is None
    batch, *records = memory.ended
    assert seen == [id_of(batch)]
    assert batch.parent is None
    assert [link.context.span_id for link in batch.links] == [SPAN, SPAN]
    assert {"message_count": 3, "offset": 1, "last_offset": 3}.items() <= about(batch).items()
    assert [about(span)["offset"] for span in records] == [1, 3]
    for span in records:
        assert trace_of(span) == TRACE
        assert [link.context.span_id for link in span.links] == [id_of(batch)]
        assert span.end_time is not None
        assert batch.end_time is not None
        assert span.start_time is not None
        assert span.end_time >= batch.end_time > span.start_time


def test_of_a_batch_that_failed_in_part_those_records_have_failed() -> None:
    memory = Memory()
    orders = [record(offset, headers=SAMPLED) for offset in range(3)]

    async def charge(orders: list[Record]) -> None:
        await asyncio.sleep(0)
        raise PartialFailure([(orders[1], ValueError("one"))])

    with pytest.raises(PartialFailure):
        awaited(memory, charge, orders)
    batch, *records = memory.ended
    assert batch.status.is_unset
    assert about(batch)["failed"] == 1
    assert [span.status.description for span in records] == [None, "one", None]


def test_a_batch_that_failed_as_a_whole_has_failed() -> None:
    memory = Memory()

    def charge(_orders: list[Record]) -> None:
        raise ValueError("all")

    with pytest.raises(ValueError, match="all"):
        called(memory, charge, [record(1), record(2, headers=SAMPLED)])
    assert [span.status.description for span in memory.ended] == ["all", "all"]


def test_a_tracer_that_fails_costs_a_counted_span_and_nothing_else() -> None:
    memory, seen = Memory(), list[Any]()

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no more")

    memory.spans.tracer.start_span = fail  # type: ignore[method-assign] # a tracer of somebody
    called(memory, seen.append, record(headers=SAMPLED))
    called(memory, seen.append, [record(headers=SAMPLED)])
    assert len(seen) == 2
    assert memory.counts.lost == 2
