"""Each sentence of LIMITS: where a later librdkafka has learnt it, strike the sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from window_consumer.kafka.embedded import LIMITS, ApiKey, EmbeddedBroker, NewRecord
from window_consumer.kafka.embedded.capacity import KEPT_BYTES, ROOM_BYTES
from window_consumer.model.errors import CapacityError

ConsumerOf = Callable[..., AbstractContextManager[Consumer]]


@pytest.fixture
def producer_of() -> Iterator[Callable[..., Producer]]:
    made = []

    def producer_of(broker: EmbeddedBroker, **settings: Any) -> Producer:
        made.append(Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap, **settings}))
        return made[-1]

    yield producer_of
    for producer in made:
        producer.close()


def admin_of(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def test_limits_are_sentences_for_users() -> None:
    assert all(limit.endswith(".") and len(limit) < 100 for limit in LIMITS)


# ---- capacity


def test_a_fill_beyond_what_a_partition_keeps_is_refused_with_nothing_written(
    embedded: EmbeddedBroker,
) -> None:
    embedded.create_topic("orders", 2)
    with pytest.raises(CapacityError, match=r"5,177,344 bytes.*orders\[1\] holds 0 and 6 records"):
        embedded.fill("orders", [NewRecord(b"x" * 1_000_000, partition=1)] * 6)
    assert embedded.end_offsets("orders") == {0: 0, 1: 0}
    assert embedded.fill("orders", [NewRecord(b"x" * 1_000_000, partition=1)] * 5) == 5


def test_what_was_written_before_counts(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 2)
    embedded.fill("orders", [NewRecord(b"x" * 1_000_000, partition=0)] * 3)
    with pytest.raises(CapacityError, match="real Kafka"):
        embedded.fill("orders", [NewRecord(b"x" * 1_000_000, partition=0)] * 3)
    assert embedded.produce("orders", b"x" * 1_000_000, partition=1) == (1, 0)


def test_keys_and_headers_count(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    large = b"x" * (ROOM_BYTES // 2)
    with pytest.raises(CapacityError):
        embedded.produce("orders", b"", key=large, headers=[("trace", large)])
    with pytest.raises(CapacityError):
        embedded.produce("orders", b"", headers=[("x" * ROOM_BYTES, None)])


@pytest.mark.parametrize("size", [0, 20, 500, 100_000])
def test_whatever_a_fill_takes_is_kept(embedded: EmbeddedBroker, size: int) -> None:
    embedded.create_topic("orders", 1)
    records = [NewRecord(b"x" * size)] * (ROOM_BYTES // (size + 36) - 10)
    embedded.fill("orders", records)
    assert embedded.start_offsets("orders") == {0: 0}
    with pytest.raises(CapacityError):
        embedded.fill("orders", [NewRecord(b"x" * size)] * 20)


def test_whatever_is_taken_one_by_one_is_kept(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    with pytest.raises(CapacityError):  # noqa: PT012 - the records before the refused one count
        for _ in range(200):
            embedded.produce("orders", b"x" * 40_000)
    assert embedded.start_offsets("orders") == {0: 0}
    assert embedded.end_offsets("orders")[0] > 120


def test_deleting_all_records_makes_room(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    for _ in range(3):
        embedded.fill("orders", [NewRecord(b"x" * 1_000_000)] * 5)
        embedded.delete_records("orders", 0, before=1)
        with pytest.raises(CapacityError):
            embedded.produce("orders", b"x" * 1_000_000)
        embedded.delete_records("orders", 0)
    assert embedded.end_offsets("orders") == {0: 15}


def test_deleting_a_topic_makes_room(embedded: EmbeddedBroker) -> None:
    for _ in range(2):
        embedded.create_topic("orders", 1)
        embedded.fill("orders", [NewRecord(b"x" * 1_000_000)] * 5)
        assert embedded.end_offsets("orders") == {0: 5}
        embedded.delete_topic("orders")


@pytest.mark.parametrize(
    ("count", "size", "batch"), [(60_000, 100, 1), (100_000, 100, 10_000), (10, 1_000_000, 1)]
)
def test_the_mock_keeps_five_megabytes_of_batches(
    embedded: EmbeddedBroker,
    producer_of: Callable[..., Producer],
    count: int,
    size: int,
    batch: int,
) -> None:
    embedded.create_topic("orders", 1)
    large = {"message.max.bytes": 2_000_000, "batch.num.messages": batch}
    producer = producer_of(embedded, **large, **{"linger.ms": 1_000})
    for _ in range(count):
        producer.produce("orders", b"x" * size)
        producer.poll(0)
    assert producer.flush(30) == 0
    kept = count - embedded.start_offsets("orders")[0]
    per_record = size + 10 + 61 / batch
    batch_bytes = 1_000_000 + per_record * batch
    assert KEPT_BYTES - batch_bytes < kept * per_record < KEPT_BYTES + batch_bytes
    assert 0 < kept < count


# ---- what is missing


def unsupported(answers: Mapping[Any, Future[Any]]) -> bool:
    (future,) = answers.values()
    with pytest.raises(KafkaException) as refusal:
        future.result(timeout=20)
    return bool(refusal.value.args[0].code() == KafkaError._UNSUPPORTED_FEATURE)


def test_admin_clients_cannot_change_topics_and_are_refused_at_once(
    embedded: EmbeddedBroker,
) -> None:
    embedded.create_topic("orders", 1)
    admin = admin_of(embedded)
    assert unsupported(admin.create_topics([NewTopic("new", 1, 1)]))
    assert unsupported(admin.delete_topics(["orders"]))
    assert unsupported(admin.create_partitions([NewPartitions("orders", 2)]))


def test_admin_clients_cannot_see_settings_or_groups_or_delete(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    admin = admin_of(embedded)
    assert unsupported(admin.describe_configs([ConfigResource("topic", "orders")]))
    change = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource("topic", "orders", incremental_configs=[change])
    assert unsupported(admin.incremental_alter_configs([changed]))
    assert unsupported(admin.describe_consumer_groups(["tests"]))
    assert unsupported(admin.delete_consumer_groups(["tests"]))
    assert unsupported(admin.delete_records([ClientPartition("orders", 0, 0)]))
    (refusal,) = admin.list_consumer_groups().result(timeout=20).errors
    assert refusal.code() == KafkaError._UNSUPPORTED_FEATURE


def test_a_producer_makes_a_missing_topic_and_a_consumer_does_not(
    embedded: EmbeddedBroker, producer_of: Callable[..., Producer], consumer_of: ConsumerOf
) -> None:
    with consumer_of(embedded.client_settings()) as consumer:
        consumer.list_topics("by-consumer", timeout=60)
    producer = producer_of(embedded)
    producer.produce("by-producer", b"v")
    assert producer.flush(10) == 0
    topics = admin_of(embedded).list_topics(timeout=60).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"by-producer": 4}


def test_transactions_neither_hide_aborted_records_nor_commit_offsets(
    embedded: EmbeddedBroker, producer_of: Callable[..., Producer], consumer_of: ConsumerOf
) -> None:
    embedded.create_topic("orders", 1)
    producer = producer_of(embedded, **{"transactional.id": "tests"})
    producer.init_transactions(10)
    settings = {**embedded.client_settings(), "isolation.level": "read_committed"}
    with consumer_of(settings) as consumer:
        producer.begin_transaction()
        producer.produce("orders", b"aborted")
        producer.flush(10)
        producer.abort_transaction(10)
        producer.begin_transaction()
        offsets = [ClientPartition("orders", 0, 7)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 10)
        producer.commit_transaction(10)
        (committed,) = consumer.committed([ClientPartition("orders", 0)], timeout=60)
        assert committed.offset == OFFSET_INVALID
        consumer.assign([ClientPartition("orders", 0, 0)])
        message = consumer.poll(10)
        assert message is not None
        assert message.value() == b"aborted"


def test_a_retried_idempotent_record_is_there_twice(
    embedded: EmbeddedBroker, producer_of: Callable[..., Producer]
) -> None:
    embedded.create_topic("orders", 1)
    delivered: list[Message] = []
    hasty = {"request.timeout.ms": 300, "socket.timeout.ms": 300, "enable.idempotence": True}
    producer = producer_of(embedded, **hasty)
    producer.produce("orders", b"first")
    assert producer.flush(10) == 0
    embedded.track_requests()
    embedded.set_rtt(60_000)
    producer.produce("orders", b"second", on_delivery=lambda _, message: delivered.append(message))
    while not embedded.requests()[ApiKey.API_VERSIONS]:
        producer.poll(0.05)  # until it has given the answer up and connects again
    embedded.set_rtt(0)
    assert producer.flush(30) == 0
    assert embedded.requests()[ApiKey.PRODUCE] == 2
    assert len(delivered) == 1
    assert embedded.end_offsets("orders") == {0: 3}


def test_a_look_up_by_timestamp_finds_nothing(
    embedded: EmbeddedBroker, consumer_of: ConsumerOf
) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"v")
    with consumer_of(embedded.client_settings()) as consumer:
        (found,) = consumer.offsets_for_times([ClientPartition("orders", 0, 0)], timeout=60)
    assert found.offset == -1


def test_sizes_are_not_checked(embedded: EmbeddedBroker, consumer_of: ConsumerOf) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"x" * 4_000_000)
    with consumer_of(embedded.client_settings()) as consumer:
        large = ClientPartition("orders", 0, 1, "m" * 30_000)
        consumer.commit(offsets=[large], asynchronous=False)
        (committed,) = consumer.committed([ClientPartition("orders", 0)], timeout=60)
    assert committed.metadata == large.metadata


def test_a_waiting_fetch_is_not_answered_early(
    embedded: EmbeddedBroker, consumer_of: ConsumerOf
) -> None:
    embedded.create_topic("orders", 1)
    with consumer_of(embedded.client_settings(), **{"fetch.wait.max.ms": 30_000}) as consumer:
        embedded.track_requests()
        consumer.assign([ClientPartition("orders", 0, 0)])
        while not embedded.requests()[ApiKey.FETCH]:
            assert consumer.poll(0.01) is None
        embedded.produce("orders", b"v")
        assert consumer.poll(0.3) is None
        embedded.close()  # or close would wait for the answer too


def test_records_sent_one_by_one_are_fetched_one_by_one(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("together", 1)
    embedded.create_topic("one-by-one", 1)
    embedded.fill("together", [NewRecord(b"v")] * 50)
    for _ in range(50):
        embedded.produce("one-by-one", b"v")
    fetches: dict[str, list[int]] = {"together": [], "one-by-one": []}
    for topic, counts in fetches.items():
        for _ in range(5):
            embedded.track_requests()
            assert len(embedded.read_all(topic)) == 50
            counts.append(embedded.requests()[ApiKey.FETCH])
    # A client that is held up on its way fetches more often, and nothing.
    assert min(fetches["together"]) < 10
    assert min(fetches["one-by-one"]) >= 50


def partitions_of(consumers: list[Consumer]) -> list[int]:
    for consumer in consumers:
        consumer.poll(0.02)
    return [len(consumer.assignment()) for consumer in consumers]


def test_a_classic_group_takes_no_later_member(
    embedded: EmbeddedBroker, consumer_of: ConsumerOf
) -> None:
    embedded.create_topic("orders", 4)
    classic = {**embedded.client_settings(), "group.protocol": "classic"}
    with consumer_of(classic) as first:
        first.subscribe(["orders"])
        while partitions_of([first]) != [4]:
            pass
        with consumer_of(classic) as second:
            second.subscribe(["orders"])
            seen = {tuple(partitions_of([first, second])) for _ in range(50)}
            embedded.close()  # or the members would wait for an answer when they leave
    assert (2, 2) not in seen


def test_a_group_of_the_consumer_protocol_shares_by_range_whatever_is_asked_for(
    embedded: EmbeddedBroker, consumer_of: ConsumerOf
) -> None:
    for topic in ("orders", "retries"):
        embedded.create_topic(topic, 4)
    uniform = {**embedded.client_settings(), "group.remote.assignor": "uniform"}
    with consumer_of(uniform) as first, consumer_of(uniform) as second:
        first.subscribe(["orders", "retries"])
        second.subscribe(["orders", "retries"])
        while partitions_of([first, second]) != [4, 4]:
            pass
        for consumer in (first, second):
            numbers = [(name.topic, name.partition) for name in consumer.assignment()]
            assert {n for topic, n in numbers if topic == "orders"} == {
                n for topic, n in numbers if topic == "retries"
            }
