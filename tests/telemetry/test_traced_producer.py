"""What an application sends has a name, and is followed to its ack, without ever failing for it."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from tests.kernel import in_a_call
from window_consumer import Record, TracedProducer, TraceSettings, UsageError
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.record import Call
from window_consumer.trace.event import TraceEvent
from window_consumer.trace.event_batch import decoded

SOON = TraceSettings(keys="raw", flush_s=0.05, app="shop-web")


class Watcher:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.received: list[tuple[Any, ...]] = []

    def sent(self, *about: Any) -> int:
        self.received.append(("sent", *about))
        return len(self.received)

    def acked(self, token: int, partition: int, offset: int) -> None:
        self.received.append(("acked", token, partition, offset))

    def failed(self, token: int, error: Exception) -> None:
        self.received.append(("failed", token, error))


class Broken:
    """Raises whatever it hears."""

    def sent(self, *_: Any) -> None:
        raise RuntimeError("no ears")

    acked = failed = sent


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic("orders", 2)
    embedded.create_topic("wc.trace", 1)
    return embedded


def events_at(broker: EmbeddedBroker) -> list[TraceEvent]:
    return [event for each in broker.read_all("wc.trace") for event in decoded(each.value())]


def conf(broker: EmbeddedBroker) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "client.id": "web"}


def test_a_record_is_named_sent_and_traced(broker: EmbeddedBroker) -> None:
    reports = []
    producer = TracedProducer(conf(broker), trace=SOON, tags="gold,eu")
    producer.produce(
        "orders",
        "7",
        key="anna",
        partition=1,
        on_delivery=lambda error, message: reports.append((error, message.offset())),
        headers={"mine": "x"},
    )
    assert len(producer) >= 1
    assert producer.flush(10) == 0
    producer.close()
    assert reports == [(None, 0)]
    (record,) = broker.read_all("orders")
    headers = dict(record.headers())
    assert (record.key(), record.value(), headers["mine"]) == (b"anna", b"7", b"x")
    assert uuid.UUID(headers["wc-id"].decode()).version == 7
    assert int(headers["wc-sent-at"]) == record.timestamp()[1]
    assert (headers["wc-tags"], "traceparent" in headers) == (b"gold,eu", False)
    (event,) = events_at(broker)
    assert (event.role, event.step, event.topic) == ("producer", "sent", "orders")
    assert (event.partition, event.offset, event.key) == (1, 0, "anna")
    assert (event.record_id, event.root_id) == (headers["wc-id"].decode(),) * 2
    assert (event.tags, event.client_id, event.app) == ("gold,eu", "web", "shop-web")
    assert event.duration_us is not None
    assert event.duration_us > 0


def test_headers_that_are_given_stay(broker: EmbeddedBroker) -> None:
    given = [("wc-id", b"o-17"), ("wc-tags", b"own"), ("wc-sent-at", b"5"), ("traceparent", b"p")]
    with TracedProducer(conf(broker), trace=None, tags="gold") as producer:
        producer.produce("orders", b"7", headers=given)
    (record,) = broker.read_all("orders")
    assert record.headers() == given


def test_the_last_events_are_written_at_the_end_of_a_block(broker: EmbeddedBroker) -> None:
    settings = TraceSettings(flush_s=600, app="web")
    with TracedProducer(conf(broker), trace=settings) as producer:
        producer.produce("orders", b"7")
    assert [event.step for event in events_at(broker)] == ["sent"]


def test_a_current_span_is_the_parent(broker: EmbeddedBroker) -> None:
    context = SpanContext(0xABC << 100, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    producer = TracedProducer(conf(broker), trace=SOON)
    with trace.use_span(NonRecordingSpan(context)):
        producer.produce("orders", b"7")
    producer.flush(10)
    producer.close()
    (record,) = broker.read_all("orders")
    parent = dict(record.headers())["traceparent"].decode()
    assert re.fullmatch(r"00-[0-9a-f]{32}-0000000000000def-01", parent)
    (event,) = events_at(broker)
    assert (event.trace_id, event.span_id) == (parent[3:35], parent[36:52])


def test_what_a_handler_sends_has_its_record_as_root(broker: EmbeddedBroker) -> None:
    broker.produce("orders", b"7", headers=[("wc-id", b"o-17")])
    (message,) = broker.read_all("orders")
    producer = TracedProducer(conf(broker), trace=SOON)
    with in_a_call(Record.of(message, Call())):
        producer.produce("orders", b"8", headers={"wc-id": "o-18"})
    producer.flush(10)
    producer.close()
    (event,) = events_at(broker)
    assert (event.record_id, event.root_id) == ("o-18", "o-17")
    assert "root" not in dict(broker.read_all("orders")[1].headers() or ())


def test_what_was_not_sent_is_traced_and_raised(broker: EmbeddedBroker) -> None:
    watcher = Watcher()
    settings = {**conf(broker), "queue.buffering.max.messages": 1}
    producer = TracedProducer(settings, trace=SOON, watchers=[watcher])
    producer.produce("orders", b"7")
    with pytest.raises(BufferError):
        producer.produce("orders", b"8")
    with pytest.raises(KafkaException):
        producer.produce("orders", b"x" * 2_000_000)
    producer.flush(10)
    producer.close()
    assert sorted(event.step for event in events_at(broker)) == ["send_failed"] * 2 + ["sent"]
    failed = [event for event in events_at(broker) if event.step == "send_failed"]
    assert {(each.status, each.partition, each.offset) for each in failed} == {
        ("refused", None, None)
    }
    errors = [error for kind, _, error, *_ in watcher.received if kind == "failed"]
    assert [type(error) for error in errors] == [BufferError, PublishFailedError]


def test_watchers_learn_of_every_record_and_may_fail(broker: EmbeddedBroker) -> None:
    watcher = Watcher()
    with TracedProducer(conf(broker), trace=None, watchers=[Broken(), watcher]) as producer:
        producer.produce("orders", b"1234", key="k", partition=0, timestamp=1_700_000_000_000)
    (record,) = broker.read_all("orders")
    id_ = dict(record.headers())["wc-id"]
    assert watcher.received == [
        ("sent", "orders", b"k", 4, 1_700_000_000_000, id_),
        ("acked", 1, 0, 0),
    ]


def test_a_sample_is_chosen_by_the_id(broker: EmbeddedBroker) -> None:
    settings = TraceSettings(sample=0.3, flush_s=0.05)
    producer = TracedProducer(conf(broker), trace=settings)
    for number in range(100):
        producer.produce("orders", b"v", headers={"wc-id": f"id-{number}"})
    producer.flush(10)
    producer.close()
    names = {event.record_id for event in events_at(broker)}
    assert 10 < len(names) < 60
    again = TracedProducer(conf(broker), trace=settings)
    for number in range(100):
        again.produce("orders", b"v", headers={"wc-id": f"id-{number}"})
    again.flush(10)
    again.close()
    assert {event.record_id for event in events_at(broker)} == names


def test_without_a_topic_for_the_trace_sending_goes_on(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way of a directory")
    embedded.create_topic("orders", 1)
    settings = TraceSettings(directory=tmp_path / "file" / "spool", flush_s=0.01)
    producer = TracedProducer(conf(embedded), trace=settings)
    producer.produce("orders", b"7")
    assert producer.flush(10) == 0
    assert producer.events_dropped in {0, 1}  # it is written beside
    producer.close()
    assert producer.events_dropped == 1
    with TracedProducer(conf(embedded), trace=None) as untraced:
        assert untraced.events_dropped == 0
    assert len(embedded.read_all("orders")) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sample": 1.5}, "sample is 1.5; write a share, from 0 to 1"),
        ({"sample": "1%"}, "sample is '1%'; write a share, from 0 to 1"),
        ({"keys": "hmac"}, "keys is hmac, which needs a key_secret of 16 characters or more"),
        ({"keys": "hmac", "key_secret": "tiny"}, "needs a key_secret of 16 characters or more"),
        ({"keys": "hashed"}, "keys is 'hashed'; write raw or hmac or off"),
        ({"by": "topic"}, "by is 'topic'; write record or key"),
        ({"failures": "none"}, "failures is 'none'; write all or sampled"),
        ({"acks": 1}, "acks is 1; write 0 or 1 or all"),
        ({"flush_s": 0}, "flush_s is 0; write seconds, above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: Any, said: str) -> None:
    settings = TraceSettings(**given)
    assert "tiny" not in repr(settings)
    with pytest.raises(UsageError, match=f"TraceSettings: .*{said}") as refused:
        TracedProducer({"bootstrap.servers": "127.0.0.1:1"}, trace=settings)
    assert "tiny" not in str(refused.value)
