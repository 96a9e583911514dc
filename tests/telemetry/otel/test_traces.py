"""Which records have spans, and in which trace."""

from __future__ import annotations

from itertools import pairwise

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, TraceIdRatioBased

from tests.telemetry.otel.memory import (
    SAMPLED,
    SPAN,
    TRACE,
    UNSAMPLED,
    Memory,
    copy_of,
    record,
    sent,
)
from window_consumer.metrics.otel.trace_ids import SpanParent, Traces
from window_consumer.model.record import Record


def place(traces: Traces, of: Record) -> SpanParent | None:
    return traces.of(of._message, is_copy=of.is_copy)


def test_a_record_of_a_sampled_producer_belongs_below_its_span() -> None:
    for traces in (Traces("shop", 0.0), Traces("shop", 1.0, lambda _trace: False)):
        for each in (record(headers=SAMPLED), copy_of(0, headers=SAMPLED)):
            found = place(traces, each)
            assert found is not None
            assert (found.parent.trace_id, found.parent.span_id) == (TRACE, SPAN)
            assert found.parent.trace_flags.sampled
            assert not found.is_own


@pytest.mark.parametrize("headers", [None, UNSAMPLED, [("traceparent", b"nonsense-01")]])
def test_others_have_no_spans_unless_a_ratio_is_given(
    headers: list[tuple[str, bytes]] | None,
) -> None:
    assert place(Traces("shop", 0.0), record(headers=headers)) is None
    assert place(Traces("shop", 1.0), record(headers=headers)) is not None


def test_a_ratio_chooses_whole_traces() -> None:
    traces = Traces("shop", 0.5)
    low, high = sent(sampled=False, trace=1), sent(sampled=False, trace=2**64 - 1)
    for make in (record, copy_of):
        chosen = place(traces, make(0, headers=low))
        assert chosen is not None
        assert chosen.parent.trace_id == 1
        assert place(traces, make(0, headers=high)) is None


def test_a_record_without_a_producer_is_chosen_by_its_first_place_wherever_it_is() -> None:
    traces = Traces("shop", 0.1)
    chosen = [offset for offset in range(10_000) if place(traces, record(offset))]
    assert 950 < len(chosen) < 1050
    assert max(b - a for a, b in pairwise(chosen)) < 50
    places = {offset: place(Traces("shop", 0.1), copy_of(offset)) for offset in range(10_000)}
    assert [offset for offset, found in places.items() if found] == chosen
    assert all(places[offset] == place(traces, record(offset)) for offset in chosen)


def test_traces_without_a_producer_are_distinguished_by_topic_partition_and_group() -> None:
    found = [
        place(Traces(group, 1.0), record(7, topic=topic, partition=partition))
        for group in ("shop", "mail")
        for topic in ("orders", "refunds")
        for partition in (0, 1)
    ]
    assert len({each.parent.trace_id for each in found if each}) == len(found)
    assert len({each.parent.span_id for each in found if each}) == len(found)


def test_the_sampler_has_the_last_word_on_those_that_a_ratio_chooses() -> None:
    assert place(Memory(1.0, ALWAYS_OFF).spans.traces, record(1)) is None
    assert place(Memory(1.0, ALWAYS_OFF).spans.traces, record(1, headers=UNSAMPLED)) is None
    # Both look at the same bits: who is among the tenth is among the half.
    half, tenth = Memory(0.5, TraceIdRatioBased(0.1)), Memory(0.1)
    for offset in range(1000):
        both, one = (place(each.spans.traces, record(offset)) for each in (half, tenth))
        assert both == one


def test_only_without_a_ratio_need_unsampled_records_not_be_asked_about() -> None:
    assert Traces("shop", 0.0).only_sampled
    assert not Traces("shop", 0.0001).only_sampled


@pytest.mark.parametrize("ratio", [0.0, 0.3])
def test_nobody_is_chosen_who_was_cleared_by_a_quick_look(ratio: float) -> None:
    traces = Traces("shop", ratio)
    wanted = 0
    for headers in (None, SAMPLED, UNSAMPLED, [("traceparent", b"nonsense-01")], [("x", None)]):
        for offset in range(50):
            for each in (record(offset, headers=headers), copy_of(offset, headers=headers or [])):
                may = traces.may_want(each._message, is_copy=each.is_copy)
                wanted += may
                assert may or place(traces, each) is None
    assert 0 < wanted < 500
