"""What ``send`` promises while brokers, topics, clients and processes are not well."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import ConsumerOf, MakeTopic
from tests.topics import make
from tests.waiting import wait_until
from window_consumer import Producer, SendFuture
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.embedded.mock_cluster import ApiKey, ErrorCode
from window_consumer.model.errors import WrongProcessError
from window_consumer.model.log_events import LogEvent
from window_consumer.producer import (
    BufferFullError,
    InvalidRecordError,
    MayHaveArrivedError,
    NeverSentError,
    NoSuchTopicError,
    SendDeniedError,
    TooLargeError,
    TransactionAbortedError,
)
from window_consumer.testing.real_kafka import RealKafka


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic("orders", 1)
    return embedded


PATIENCE_S = 30.0


def producer_of(broker: EmbeddedBroker, **more: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, **more})


def values(broker: EmbeddedBroker, topic: str = "orders") -> list[int]:
    records = sorted(broker.read_all(topic), key=lambda each: int(each.offset() or 0))
    return [int(each.value() or b"-1") for each in records]


def errors_of(futures: list[SendFuture]) -> list[type]:
    return [type(each.exception(0)) for each in futures if each.exception(0) is not None]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.DISCONNECT,
    ],
)
def test_transient_errors_are_not_seen(broker: EmbeddedBroker, code: ErrorCode) -> None:
    with producer_of(broker) as producer:
        broker.push_request_errors(ApiKey.PRODUCE, *[code] * 3)
        futures = [producer.send("orders", b"anna", str(number)) for number in range(500)]
        assert producer.flush(30) == 0
    assert errors_of(futures) == []
    assert values(broker) == list(range(500))


def test_a_broker_that_is_away_delays_and_loses_nothing(broker: EmbeddedBroker) -> None:
    with producer_of(broker) as producer:
        producer.send("orders", b"anna", "0").result(10)
        broker.broker_down()
        futures = [producer.send("orders", b"anna", str(number)) for number in range(1, 500)]
        assert producer.flush(0.5) == 499
        assert not any(each.done() for each in futures)
        broker.broker_up()
        assert producer.flush(30) == 0
    assert values(broker) == list(range(500))


def test_a_client_that_gives_up_is_replaced_and_order_is_kept(broker: EmbeddedBroker) -> None:
    with producer_of(broker) as producer:
        producer.send("orders", b"anna", "0").result(10)
        # The client gives up: nothing but a new one can send then.
        broker.push_request_errors(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        first = producer.send("orders", b"anna", "1")
        assert isinstance(first.exception(10), SendDeniedError)
        futures = [producer.send("orders", b"anna", str(number)) for number in range(2, 1000)]
        assert producer.flush(30) == 0
    assert errors_of(futures) == []
    assert values(broker) == [0, *range(2, 1000)]


def test_what_is_sent_while_a_client_is_replaced_comes_after_what_it_had(
    broker: EmbeddedBroker,
) -> None:
    with producer_of(broker) as producer:
        producer.send("orders", b"anna", "0").result(10)
        broker.push_request_errors(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        denied = producer.send("orders", b"anna", "-1")
        futures: list[SendFuture] = []
        ends = time.monotonic() + PATIENCE_S
        # Before, during and after the replacement, in every moment of it.
        while not any(is_written(each) for each in futures) and time.monotonic() < ends:
            futures += [
                producer.send("orders", b"anna", str(len(futures) + number))
                for number in range(1, 21)
            ]
            time.sleep(0.001)
        assert isinstance(denied.exception(10), SendDeniedError)
        assert producer.flush(PATIENCE_S) == 0
    # Those of the first batch were refused with it; all others follow in order.
    refused = len(errors_of(futures))
    assert not any(is_written(each) for each in futures[:refused])
    assert values(broker) == [0, *range(refused + 1, len(futures) + 1)]


def is_written(future: SendFuture) -> bool:
    return future.done() and future.exception(0) is None


def test_threads_that_send_while_a_client_is_replaced_keep_their_order(
    broker: EmbeddedBroker,
) -> None:
    broker.create_topic("others", 1)
    futures: list[list[SendFuture]] = [[], []]

    def send(thread: int) -> None:
        for number in range(20_000):
            futures[thread].append(producer.send("others", str(thread), str(number)))

    with producer_of(broker) as producer:
        threads = [threading.Thread(target=send, args=(number,)) for number in range(2)]
        for each in threads:
            each.start()
        for size in ("32MiB", "16MiB", "48MiB"):
            producer.memory = size
        for each in threads:
            each.join()
        assert producer.flush(60) == 0
    assert errors_of([*futures[0], *futures[1]]) == []
    records = sorted(broker.read_all("others"), key=lambda each: int(each.offset() or 0))
    for thread in range(2):
        mine = [int(each.value() or b"") for each in records if each.key() == b"%d" % thread]
        assert mine == list(range(20_000))


def test_a_close_says_what_was_never_sent_and_what_may_have_arrived(broker: EmbeddedBroker) -> None:
    producer = producer_of(broker)
    producer.send("orders", value="0").result(10)
    broker.set_rtt(5000)
    on_its_way = producer.send("orders", value="1")
    time.sleep(0.3)  # the client has no sign of a request that is on its way
    producer.close(0)
    assert type(on_its_way.exception(0)) is MayHaveArrivedError


def test_what_no_broker_ever_received_was_never_sent() -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1"})
    futures = [producer.send("orders", value="1") for _ in range(1000)]
    producer.close(0.2)
    assert {type(each.exception(0)) for each in futures} == {NeverSentError}


def test_a_connection_that_was_cut_leaves_doubt(broker: EmbeddedBroker) -> None:
    producer = producer_of(broker)
    producer.send("orders", value="0").result(10)
    broker.set_rtt(3000)
    doubtful = producer.send("orders", value="1")
    time.sleep(0.3)  # as above
    broker.broker_down()
    time.sleep(0.5)  # until the client has noticed
    producer.close(0)
    assert type(doubtful.exception(0)) is MayHaveArrivedError


def test_a_name_that_is_no_topic_is_refused_at_once(broker: EmbeddedBroker) -> None:
    with producer_of(broker) as producer, pytest.raises(ValueError, match="bad/name"):
        producer.send("bad/name", value="1", tags="x")


def test_a_fork_cannot_use_the_producer(broker: EmbeddedBroker) -> None:
    with producer_of(broker) as producer:
        producer.send("orders", value="0").result(10)
        child = os.fork()
        if not child:
            uses: list[Callable[[], object]] = [
                lambda: producer.send("orders", value="1"),
                lambda: producer.send("orders", value="1", tags="x"),
                producer.flush,
                producer.close,
            ]
            code = 0
            for number, use in enumerate(uses):
                code |= (not _is_refused(use)) << number
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send("orders", value="1").result(10)
    assert values(broker) == [0, 1]


def _is_refused(use: Callable[[], object]) -> bool:
    try:
        use()
    except WrongProcessError:
        return True
    except BaseException:
        return False
    return False


# ---- a real Kafka


def read(
    consumer_of: ConsumerOf, kafka: RealKafka, topic: str, count: int
) -> list[tuple[Any, dict[str, Any]]]:
    with consumer_of({"bootstrap.servers": kafka.bootstrap}) as consumer:
        consumer.subscribe([topic])
        found: list[tuple[Any, dict[str, Any]]] = []
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            for each in consumer.consume(count - len(found), 0.5):
                assert each.error() is None
                found.append((each.value() or b"", dict(cast("Any", each.headers()) or ())))
    return found


def test_a_large_batch_is_halved_until_the_record_alone_is_left(
    kafka: RealKafka, make_topic: MakeTopic, consumer_of: ConsumerOf
) -> None:
    topic = make_topic("large", 1, {"max.message.bytes": "20000"})
    with Producer({"bootstrap.servers": kafka.bootstrap}, compression="none") as producer:
        futures = []
        for number in range(200):
            payload = os.urandom(40_000 if number in (50, 150) else 1000)
            futures.append(producer.send(topic, b"anna", b"%05d" % number + payload))
        assert producer.flush(60) == 0
    refused = {number: each.exception(0) for number, each in enumerate(futures)}
    assert {number for number, error in refused.items() if error} == {50, 150}
    for number in (50, 150):
        error = refused[number]
        assert isinstance(error, TooLargeError)
        assert (error.topic, error.limit) == (topic, 20_000)
        assert error.size > 40_000
    found = read(consumer_of, kafka, topic, 198)
    assert [int(value[:5]) for value, _ in found] == [n for n in range(200) if n not in (50, 150)]


def test_a_topic_that_is_deleted_and_made_again_gets_its_records_in_order(
    kafka: RealKafka, make_topic: MakeTopic, consumer_of: ConsumerOf
) -> None:
    topic, other = make_topic("deleted"), make_topic("other")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    with Producer({"bootstrap.servers": kafka.bootstrap}) as producer:
        producer.send(topic, b"anna", "old").result(10)
        admin.delete_topics([topic])[topic].result(10)
        futures = [producer.send(topic, b"anna", str(number)) for number in range(100)]
        producer.send(other, value="x").result(10)
        _remake(admin, topic)
        futures += [producer.send(topic, b"anna", str(number)) for number in range(100, 200)]
        assert producer.flush(30) == 0
    assert errors_of(futures) == []
    found = read(consumer_of, kafka, topic, 200)
    assert [int(value) for value, _ in found] == list(range(200))
    assert len({headers["wc-id"] for _, headers in found}) == 200


def _remake(admin: AdminClient, topic: str) -> None:
    make(admin, NewTopic(topic, num_partitions=1, replication_factor=1))


def test_a_topic_that_stays_missing_fails_its_records_alone(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> None:
    missing, there = unique_name("missing"), make_topic("there")
    settings = {"bootstrap.servers": kafka.bootstrap, "topic.metadata.propagation.max.ms": 1000}
    with Producer(settings) as producer:
        future = producer.send(missing, b"anna", b"1")
        producer.send(there, value=b"1").result(10)
        assert not future.done()
        assert type(future.exception(30)) is NoSuchTopicError
        began = time.monotonic()
        assert type(producer.send(missing, b"anna", b"2").exception(30)) is NoSuchTopicError
        assert time.monotonic() - began < 1


def await_event(caplog: pytest.LogCaptureFixture, event: LogEvent) -> None:
    wait_until(
        lambda: any(getattr(each, "event", None) is event for each in caplog.records),
        PATIENCE_S,
        event.value,
    )


def fill(producer: Producer, topic: str, futures: list[SendFuture]) -> None:
    while len(futures) < 2_000:
        futures.append(producer.send(topic, b"anna", b"x" * 1024))


def test_records_of_a_missing_topic_count_against_the_bound_and_leave_room_for_others(
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    missing, there = unique_name("missing"), make_topic("there")
    settings = {"bootstrap.servers": kafka.bootstrap, "topic.metadata.propagation.max.ms": 60_000}
    producer = Producer(settings, memory="1MiB", max_block="100ms")
    held = [producer.send(missing, b"anna", b"x")]
    await_event(caplog, LogEvent.PRODUCER_TOPIC_MISSING)
    with pytest.raises(BufferFullError):
        fill(producer, missing, held)
    assert len(held) < 1024
    # Half of it is left for topics that are there.
    written = [producer.send(there, b"anna", b"x" * 1024) for _ in range(400)]
    assert {each.result(PATIENCE_S).topic for each in written} == {there}
    _remake(AdminClient({"bootstrap.servers": kafka.bootstrap}), missing)
    assert producer.flush(PATIENCE_S) == 0
    # What was held has given its room back.
    held += [producer.send(missing, b"anna", b"x" * 1024) for _ in range(900)]
    producer.close()
    assert [each.result(0).offset for each in held] == list(range(len(held)))


def test_a_topic_without_permission_fails_its_records_alone(
    kafka: RealKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic("denied")
    settings = kafka.sasl_settings("bob")
    with Producer(settings) as producer:
        assert type(producer.send(topic, value=b"1").exception(30)) is SendDeniedError


def test_a_record_that_the_broker_calls_invalid_is_refused(
    kafka: RealKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic("compacted", 1, {"cleanup.policy": "compact"})
    with Producer({"bootstrap.servers": kafka.bootstrap}) as producer:
        without_key = producer.send(topic, value=b"1")
        assert type(without_key.exception(30)) is InvalidRecordError
        assert producer.send(topic, b"anna", b"1").result(30).offset == 0


def aborted(producer: Producer, topic: str) -> None:
    with producer.transaction():
        producer.send(topic, value=b"2").result(10)
        raise ZeroDivisionError


def test_a_transaction_commits_all_or_nothing(
    kafka: RealKafka,
    make_topic: MakeTopic,
    consumer_of: ConsumerOf,
    unique_name: Callable[[str], str],
) -> None:
    topic = make_topic("transactions")
    settings = {"bootstrap.servers": kafka.bootstrap}
    name = unique_name("transactional")
    with Producer(settings, transactional_id=name) as producer:
        with producer.transaction():
            first = producer.send(topic, value=b"1")
        assert first.result(0).topic == topic
        with pytest.raises(ZeroDivisionError):
            aborted(producer, topic)
        with producer.transaction():
            producer.send(topic, value=b"3")
        with Producer(settings, transactional_id=name) as other:
            with other.transaction():
                other.send(topic, value=b"4")
            with pytest.raises(TransactionAbortedError), producer.transaction():
                producer.send(topic, value=b"5")
    assert [value for value, _ in read(consumer_of, kafka, topic, 3)] == [b"1", b"3", b"4"]
