from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from tests.golden_texts import Golden
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, ErrorCode
from window_consumer.model.errors import UsageError

ConsumerOf = Callable[..., AbstractContextManager[Consumer]]
NOTHING = OFFSET_INVALID


@pytest.fixture
def two_brokers() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=2, topics={"orders": 2}) as broker:
        broker.set_leader("orders", 0, 1)
        broker.set_leader("orders", 1, 2)
        yield broker


def admin_of(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def leader(broker: EmbeddedBroker) -> int:
    metadata = admin_of(broker).list_topics("orders", timeout=60)
    return metadata.topics["orders"].partitions[0].leader


def commit(consumer: Consumer, offset: int) -> None:
    consumer.commit(offsets=[ClientPartition("orders", 0, offset)], asynchronous=False)


def committed(consumer: Consumer, timeout_s: float = 60.0) -> int:
    (answer,) = consumer.committed([ClientPartition("orders", 0)], timeout=timeout_s)
    return answer.offset


def test_a_broker_that_is_down_does_not_answer_until_it_is_up(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    embedded.broker_down()
    with pytest.raises(KafkaException):
        admin_of(embedded).list_topics(timeout=0.5)
    embedded.broker_up()
    assert "orders" in admin_of(embedded).list_topics(timeout=60).topics


def test_one_of_two_brokers_can_be_down(
    two_brokers: EmbeddedBroker, consumer_of: ConsumerOf
) -> None:
    two_brokers.broker_down(1)
    assert two_brokers.produce("orders", b"v", partition=1) == (1, 0)
    with consumer_of(two_brokers.client_settings()) as consumer, pytest.raises(KafkaException):
        consumer.get_watermark_offsets(ClientPartition("orders", 0), timeout=0.5)


def test_a_round_trip_takes_as_long_as_it_was_set(embedded: EmbeddedBroker) -> None:
    admin = admin_of(embedded)
    admin.list_topics(timeout=60)
    embedded.set_rtt(60_000)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)
    embedded.set_rtt(0)
    assert admin.list_topics(timeout=60).brokers


def test_pushed_errors_answer_the_next_requests_in_order(
    embedded: EmbeddedBroker, consumer_of: ConsumerOf
) -> None:
    embedded.create_topic("orders", 1)
    refusals = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OFFSET_METADATA_TOO_LARGE
    embedded.push_request_errors(ApiKey.OFFSET_COMMIT, *refusals)
    with consumer_of(embedded.client_settings()) as consumer:
        for code in refusals:
            with pytest.raises(KafkaException) as refusal:
                commit(consumer, 5)
            assert refusal.value.args[0].code() == code
        assert committed(consumer) == NOTHING
        commit(consumer, 5)
        assert committed(consumer) == 5


def test_pushed_errors_can_be_cleared(embedded: EmbeddedBroker, consumer_of: ConsumerOf) -> None:
    embedded.create_topic("orders", 1)
    embedded.push_request_errors(ApiKey.OFFSET_COMMIT, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    embedded.clear_request_errors(ApiKey.OFFSET_COMMIT)
    with consumer_of(embedded.client_settings()) as consumer:
        commit(consumer, 5)
        assert committed(consumer) == 5


def test_a_pushed_disconnect_makes_the_client_ask_again(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    embedded.track_requests()
    embedded.push_request_errors(ApiKey.PRODUCE, ErrorCode.DISCONNECT)
    assert embedded.produce("orders", b"v") == (0, 0)
    assert embedded.requests()[ApiKey.PRODUCE] == 2
    assert embedded.end_offsets("orders") == {0: 1}


def test_tracking_counts_from_zero_each_time(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"v")
    embedded.track_requests()
    embedded.produce("orders", b"v")
    assert embedded.requests()[ApiKey.PRODUCE] == 1
    embedded.track_requests()
    assert embedded.requests()[ApiKey.PRODUCE] == 0


def test_a_partition_moves_to_another_broker_with_its_records(two_brokers: EmbeddedBroker) -> None:
    for number in (1, 2):
        two_brokers.set_leader("orders", 0, number)
        two_brokers.produce("orders", b"%d" % number, partition=0)
        assert leader(two_brokers) == number
    assert [record.value() for record in two_brokers.read_all("orders")] == [b"1", b"2"]


def test_a_partition_can_be_without_a_leader(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    embedded.set_leader("orders", 0, None)
    assert leader(embedded) == -1


def test_a_group_follows_its_coordinator(
    two_brokers: EmbeddedBroker, consumer_of: ConsumerOf
) -> None:
    settings = two_brokers.client_settings()
    two_brokers.set_coordinator("tests", 1)
    with consumer_of(settings) as consumer:
        commit(consumer, 1)
    two_brokers.broker_down(1)
    with consumer_of(settings) as consumer, pytest.raises(KafkaException):
        committed(consumer, timeout_s=0.5)
    two_brokers.set_coordinator("tests", 2)
    with consumer_of(settings) as consumer:
        assert committed(consumer) == 1


def test_a_disabled_request_is_unknown_to_new_clients(
    embedded: EmbeddedBroker, consumer_of: ConsumerOf
) -> None:
    embedded.create_topic("orders", 1)
    embedded.disable_api(ApiKey.OFFSET_FETCH)
    with (
        consumer_of(embedded.client_settings()) as consumer,
        pytest.raises(KafkaException) as refusal,
    ):
        committed(consumer)
    assert refusal.value.args[0].code() == KafkaError._UNSUPPORTED_FEATURE


def test_a_fault_of_a_broker_that_is_not_there_is_refused(
    embedded: EmbeddedBroker, golden: Golden
) -> None:
    with golden.raises(UsageError):
        embedded.broker_down(9)


@pytest.mark.parametrize("code", ErrorCode)
def test_error_codes_are_those_of_the_protocol(code: ErrorCode) -> None:
    otherwise_named = {
        "DISCONNECT": "_TRANSPORT",
        "MESSAGE_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
        "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    }
    assert KafkaError(code).name() == otherwise_named.get(code.name, code.name)
