"""``Producer(trace=, audit=)``: records are followed and counted, and never fail for it."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from tests import reading
from window_consumer import Producer, TraceSettings
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.embedded.mock_cluster import ApiKey, ErrorCode
from window_consumer.producer import BufferFullError, NeverSentError, SendDeniedError

SOON = TraceSettings(keys="raw", flush_s=0.05, app="shop-web")


class Counter:
    """An audit that writes down what it is told."""

    def __init__(self) -> None:
        self.sent_ids: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.ends: dict[int, list[Any]] = {}

    def sent(
        self, topic: str, key: bytes | None, size: int, timestamp_ms: int, record_id: bytes
    ) -> int:
        assert (topic, size, timestamp_ms > 0) == ("orders", 1, True)
        self.sent_ids.append(record_id)
        self.keys.append(key)
        return len(self.sent_ids) - 1

    def acked(self, token: int, partition: int, offset: int) -> None:
        self.ends.setdefault(token, []).append((partition, offset))

    def failed(self, token: int, error: Exception) -> None:
        self.ends.setdefault(token, []).append(type(error))


class BrokenCounter:
    """Raises whatever it is told."""

    def sent(self, *_: Any) -> None:
        raise RuntimeError("broken")

    acked = failed = sent


def test_a_record_that_is_sent_within_a_span_has_its_traceparent(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    span = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1)))
    with Producer({"bootstrap.servers": embedded.bootstrap}) as producer:
        with trace.use_span(span):
            producer.send("orders", value=b"1").result(10)
            producer.send("orders", value=b"2", headers={"traceparent": "mine"}).result(10)
        producer.send("orders", value=b"3").result(10)
    records = sorted(embedded.read_all("orders"), key=lambda each: int(each.offset() or 0))
    assert [dict(each.headers() or ()).get("traceparent") for each in records] == [
        b"00-00000000000000000000000000000abc-0000000000000def-01",
        b"mine",
        None,
    ]


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic("orders", 1)
    embedded.create_topic("wc.trace", 1)
    return embedded


def settings_of(broker: EmbeddedBroker) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "client.id": "web"}


def test_a_record_is_traced_with_its_id_and_place(broker: EmbeddedBroker) -> None:
    context = SpanContext(0xABC << 100, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    with Producer(settings_of(broker), trace=SOON) as producer:
        with trace.use_span(NonRecordingSpan(context)):
            producer.send("orders", b"anna", b"7", tags="gold").result(10)
        assert producer.events_dropped == 0
    (record,) = broker.read_all("orders")
    headers = dict(record.headers() or ())
    (event,) = reading.events(broker.read_all("wc.trace"))
    assert (event.role, event.step, event.topic) == ("producer", "sent", "orders")
    assert (event.partition, event.offset, event.key) == (0, 0, "anna")
    assert event.record_id == headers["wc-id"].decode()
    assert (event.tags, event.client_id, event.app) == ("gold", "web", "shop-web")
    assert headers["traceparent"].split(b"-")[2] == b"0000000000000def"
    assert int(headers["wc-sent-at"]) == record.timestamp()[1]


def test_what_fails_is_traced_and_counted_as_refused(broker: EmbeddedBroker) -> None:
    counter = Counter()
    with Producer(settings_of(broker), trace=SOON, audit=counter) as producer:
        producer.send("orders", value=b"0").result(10)
        broker.push_request_errors(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        denied = producer.send("orders", value=b"1")
        assert type(denied.exception(10)) is SendDeniedError
    assert counter.ends == {0: [(0, 0)], 1: [SendDeniedError]}
    steps = {(event.step, event.status) for event in reading.events(broker.read_all("wc.trace"))}
    assert ("send_failed", "refused") in steps


def test_each_record_is_counted_once_although_its_client_is_replaced(
    broker: EmbeddedBroker,
) -> None:
    counters = [Counter(), Counter()]
    with Producer(settings_of(broker), audit=counters) as producer:
        for number in range(200):
            producer.send("orders", b"anna", b"%d" % (number % 10))
            if number == 100:
                producer.memory = "16MiB"  # makes a new client
        assert producer.flush(30) == 0
    written = [dict(each.headers() or ())["wc-id"] for each in broker.read_all("orders")]
    for counter in counters:
        assert counter.sent_ids == written
        assert counter.keys == [b"anna"] * 200
        assert counter.ends == {number: [(0, number)] for number in range(200)}


def test_what_never_arrived_is_counted_as_failed() -> None:
    counter = Counter()
    producer = Producer(
        {"bootstrap.servers": "127.0.0.1:1"}, memory="1KiB", max_block="50ms", audit=counter
    )
    for _ in range(2):
        producer.send("orders", value=b"7")
    with pytest.raises(BufferFullError):
        producer.send("orders", value=b"7")
    producer.close(0)
    assert counter.ends == {0: [NeverSentError], 1: [NeverSentError], 2: [BufferFullError]}


def test_an_audit_that_raises_changes_nothing(broker: EmbeddedBroker) -> None:
    counter = Counter()
    with Producer(settings_of(broker), audit=[BrokenCounter(), counter]) as producer:
        assert producer.send("orders", value=b"7").result(10).offset == 0
    assert counter.ends == {0: [(0, 0)]}


def test_a_trace_without_its_topic_changes_nothing(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    with Producer(settings_of(embedded), trace=SOON) as producer:
        assert producer.send("orders", value=b"7").result(10).offset == 0
