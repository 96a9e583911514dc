"""What a refused record of one topic does to the others: nothing."""

from __future__ import annotations

import os
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import ConsumerOf, MakeTopic
from tests.integration.access import Access
from tests.topics import make
from tests.waiting import wait_until
from window_consumer import Producer, SendFuture
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.embedded.mock_cluster import ApiKey, ErrorCode
from window_consumer.model.log_events import LogEvent
from window_consumer.producer import (
    InvalidRecordError,
    MayHaveArrivedError,
    NeverSentError,
    SendDeniedError,
    TooLargeError,
)
from window_consumer.testing.real_kafka import RealKafka

PATIENCE_S = 60.0

NEVER_MS = 600_000

CALM_S = 1.0
"""A refused topic has a client of its own until so long without a refusal: docs/producer.md."""


def errors_of(futures: list[SendFuture]) -> set[type]:
    return {type(each.exception(PATIENCE_S)) for each in futures}


def read(consumer_of: ConsumerOf, kafka: RealKafka, topic: str, count: int) -> list[int]:
    """Return the values of a topic with one partition, at least so many."""
    found: list[int] = []
    with consumer_of({"bootstrap.servers": kafka.bootstrap}) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            found += [int(each.value() or b"") for each in consumer.consume(1000, 0.2)]
    return found


def refused(caplog: pytest.LogCaptureFixture, event: LogEvent) -> list[str]:
    return [
        each.getMessage().split(":")[0]
        for each in caplog.records
        if getattr(each, "event", None) is event
    ]


def test_a_refusal_concerns_its_topic_alone(
    kafka: RealKafka,
    make_topic: MakeTopic,
    consumer_of: ConsumerOf,
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, denied = make_topic("good"), make_topic("denied")
    invalid = make_topic("invalid", 1, {"cleanup.policy": "compact"})
    large = make_topic("large", 1, {"max.message.bytes": "20000"})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    access = Access(admin, "bob")
    for topic in (good, invalid, large):
        access.grant("topic", topic, "WRITE", "DESCRIBE")
    access.grant("topic", denied, "DESCRIBE")
    futures: dict[str, list[SendFuture]] = {good: [], denied: [], invalid: [], large: []}
    with Producer(kafka.sasl_settings("bob")) as producer:
        for number in range(60):
            futures[good] += [
                producer.send(good, b"anna", str(10 * number + each)) for each in range(10)
            ]
            futures[denied].append(producer.send(denied, b"anna", b"1"))
            futures[invalid].append(producer.send(invalid, value=b"1"))
            futures[large].append(producer.send(large, b"anna", os.urandom(30_000)))
            time.sleep(0.02)
        assert producer.flush(PATIENCE_S) == 0
        assert {topic: errors_of(each) for topic, each in futures.items()} == {
            good: {type(None)},
            denied: {SendDeniedError},
            invalid: {InvalidRecordError},
            large: {TooLargeError},
        }
        assert read(consumer_of, kafka, good, 600) == list(range(600))
        assert refused(caplog, LogEvent.PRODUCER_FAILED) == []
        apart = refused(caplog, LogEvent.PRODUCER_TOPIC_REFUSED)
        assert set(apart) == {denied, invalid, large}
        # What its topic takes is written, in order, whatever becomes of the topic.
        access.grant("topic", denied, "WRITE")
        wait_until(lambda: is_written(producer.send(denied, b"bert", b"-1")), PATIENCE_S, denied)
        admin.delete_topics([denied])[denied].result(PATIENCE_S)
        taken = [producer.send(denied, b"anna", str(number)) for number in range(100)]
        make(admin, NewTopic(denied, num_partitions=1, replication_factor=1))
        taken += [producer.send(denied, b"anna", str(number)) for number in range(100, 200)]
        assert producer.flush(PATIENCE_S) == 0
    assert errors_of(taken) == {type(None)}
    assert read(consumer_of, kafka, denied, 200) == list(range(200))


def is_written(future: SendFuture) -> bool:
    return future.exception(PATIENCE_S) is None


def sent_while_refused(producer: Producer, embedded: EmbeddedBroker) -> list[SendFuture]:
    """Send three records to a topic whose records were refused; no answer comes any more.

    Where that takes as long as the topic needs to be calm, another topic is taken.
    """
    while True:
        topic = f"orders-{time.monotonic_ns()}"
        embedded.create_topic(topic, 1)
        producer.send(topic, b"anna", b"0").result(PATIENCE_S)
        began = time.monotonic()
        embedded.push_request_errors(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        denied = producer.send(topic, b"anna", b"1")
        assert type(denied.exception(PATIENCE_S)) is SendDeniedError
        producer.send(topic, b"anna", b"2").result(PATIENCE_S)
        embedded.set_rtt(NEVER_MS)
        embedded.track_requests()
        sent = [producer.send(topic, b"anna", b"3") for _ in range(3)]
        if time.monotonic() - began < CALM_S:
            return sent
        embedded.set_rtt(0)
        assert producer.flush(PATIENCE_S) == 0


def test_close_answers_what_waits_for_a_topic_that_was_refused(embedded: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": embedded.bootstrap})
    left = sent_while_refused(producer, embedded)
    wait_until(lambda: embedded.requests()[ApiKey.PRODUCE] > 0, PATIENCE_S, "one in flight")
    assert producer.flush(0.3) == 3
    producer.close(0)
    assert [type(each.exception(0)) for each in left] == [
        MayHaveArrivedError,
        NeverSentError,
        NeverSentError,
    ]
