"""What the headers of a record carry comes through the outbox."""

from __future__ import annotations

import json

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from tests.database.conftest import OutboxBench, arrived, header, relaying
from window_consumer.kafka.embedded import EmbeddedBroker

SPAN = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1)))
PARENT = b"00-00000000000000000000000000000abc-0000000000000def-01"


def test_a_row_carries_the_span_and_the_wishes_of_who_adds_it(
    embedded: EmbeddedBroker, bench: OutboxBench
) -> None:
    embedded.create_topic("orders", 1)
    with trace.use_span(SPAN):
        bench.add(
            "orders",
            b"anna",
            {"amount": 1},  # type: ignore[arg-type] # what serialize takes
            serialize=json.dumps,
            ttl="1500ms",
            tags=["gold", "eu"],
            headers={"wc-sent-at": "17", "mine": b"\xff"},
        )
        bench.add("orders", b"anna", b"", headers={"traceparent": "mine", "ttl": "3"}, ttl=4)
    bench.add("orders", b"anna", None, serialize=json.dumps)  # type: ignore[arg-type]
    with relaying(bench, embedded.bootstrap):
        first, second, third = sorted(
            arrived(embedded, "orders", 3), key=lambda each: int(each.offset() or 0)
        )
    assert first.value() == b'{"amount": 1}'
    assert {name: header(first, name) for name in ("traceparent", "ttl", "wc-tags")} == {
        "traceparent": PARENT,
        "ttl": b"1.5",
        "wc-tags": b"gold,eu",
    }
    assert (header(first, "wc-sent-at"), header(first, "mine")) == (b"17", b"\xff")
    assert (header(second, "traceparent"), header(second, "ttl")) == (b"mine", b"3")
    assert third.value() is None
    assert [name for name, _ in third.headers() or ()] == ["wc-id"]


@pytest.mark.parametrize("ttl", ["soon", "3"])
def test_a_ttl_that_is_no_duration_is_refused(bench: OutboxBench, ttl: str) -> None:
    with pytest.raises(ValueError, match="ttl"):
        bench.add("orders", ttl=ttl)
    assert bench.count() == 0
