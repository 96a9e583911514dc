"""Log records say where they were written: at which record, and in which trace."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext

from tests.engine.support import Note
from window_consumer.model.record import Call, Record
from window_consumer.runtime.context import RecordContext, Slot, current_slot

TRACE, SPAN = "a" * 32, "b" * 16
SENT = [("traceparent", f"00-{TRACE}-{SPAN}-00".encode())]


@pytest.fixture
def record() -> Record:
    return Record.of(Note(7, headers=SENT), Call(2))


def fields_of_a_line(**given: Any) -> dict[str, Any]:
    line = logging.makeLogRecord(given)
    assert RecordContext().filter(line)
    return vars(line)


def within(slot: Slot | Record) -> dict[str, Any]:
    token = current_slot.set(slot)
    try:
        return fields_of_a_line()
    finally:
        current_slot.reset(token)


def test_a_line_of_a_handler_has_its_records_place_and_trace(record: Record) -> None:
    for slot in (record, Slot(record), Slot(batch=[record])):
        line = within(slot)
        assert (line["topic"], line["partition"], line["offset"]) == ("orders", 0, 7)
        assert (line["attempt"], line["trace_id"], line["span_id"]) == (2, TRACE, SPAN)


def test_the_current_span_counts_for_more_than_the_header(record: Record) -> None:
    span = NonRecordingSpan(SpanContext(int("c" * 32, 16), int("d" * 16, 16), is_remote=False))
    with trace.use_span(span):
        line = within(record)
    assert (line["trace_id"], line["span_id"]) == ("c" * 32, "d" * 16)


def test_outside_of_handlers_and_traces_the_fields_are_none() -> None:
    assert trace.get_current_span(Context()) is trace.INVALID_SPAN
    line = fields_of_a_line()
    assert {line[name] for name in ("topic", "offset", "trace_id", "span_id")} == {None}
    record = Record.of(Note(7), Call())
    assert within(record)["trace_id"] is None
