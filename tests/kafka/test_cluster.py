"""What a real cluster says of itself, and what groups have committed there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.kafka.cluster.topics import ConsumerGroup, NewCopyTopic
from window_consumer.model import record
from window_consumer.model.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    MissingTopicError,
    NotPermittedError,
    WindowConsumerError,
)
from window_consumer.testing.real_kafka import RealKafka

MakeTopic = Callable[..., str]
Name = Callable[[str], str]
ConsumerOf = Callable[..., AbstractContextManager[Consumer]]

LOG = ClientLog(logging.getLogger("window_consumer.client"))
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.fixture
def cluster(kafka: RealKafka) -> Cluster:
    return Cluster(plain(kafka), LOG)


def plain(kafka: RealKafka) -> dict[str, str | int]:
    return {"bootstrap.servers": kafka.bootstrap, "log_level": 0}


def logged_in(kafka: RealKafka, user: str) -> Cluster:
    return Cluster({**kafka.sasl_settings(user), "log_level": 0}, LOG)


# ---- is it there


def test_a_cluster_that_is_there_is_not_waited_for(cluster: Cluster) -> None:
    said = []
    cluster.wait_until_there(60, lambda reason, _: said.append(reason))
    assert said == []


def test_waiting_says_why_and_ends() -> None:
    said = []
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1 "):
        Cluster(NOWHERE, LOG).wait_until_there(0.5, lambda reason, _: said.append(reason))
    with pytest.raises(ZeroDivisionError):
        Cluster(NOWHERE, LOG).wait_until_there(60, lambda _reason, _waited: print(1 / 0))


@pytest.mark.parametrize("given", [{}, {"bootstrap.servers": ""}, {"bootstrap.servers": " , "}])
def test_nothing_is_asked_without_an_address(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^kafka\.bootstrap\.servers: "):
        Cluster({**given, "log_level": 0}, LOG).wait_until_there(60, lambda _reason, _waited: None)


def test_the_older_name_of_the_addresses_counts() -> None:
    older = {"metadata.broker.list": "127.0.0.1:1", "log_level": 0}
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1 "):
        Cluster(older, LOG).wait_until_there(0.2, lambda _reason, _waited: None)


def test_a_wrong_password_is_not_waited_for(kafka: RealKafka) -> None:
    wrong = {**kafka.sasl_settings("admin"), "sasl.password": "wrong", "log_level": 0}
    with pytest.raises(AuthenticationError, match=r"\bsasl\.mechanism"):
        Cluster(wrong, LOG).wait_until_there(60, lambda _reason, _waited: None)


def test_settings_that_the_client_refuses_are_the_configurations_fault() -> None:
    with pytest.raises(ConfigError, match=r'kafka: .*"no\.such\.setting"'):
        Cluster({"no.such.setting": 1}, LOG)


# ---- topics


def test_a_topic_is_made_as_wanted_and_described(cluster: Cluster, unique_name: Name) -> None:
    name = unique_name("copies")
    new = NewCopyTopic(name, 3, 1, {"retention.ms": "77777", "max.message.bytes": "88888"})
    cluster.create([new], validate_only=True)
    assert name not in cluster.topic_names()
    cluster.create([new])
    cluster.create([new])  # one that is there already is fine
    while name not in (found := cluster.topics([name])):
        pass
    topic = found[name]
    assert (topic.name, topic.partitions, topic.replication) == (name, 3, 1)
    assert topic.topic_id
    assert topic.operations is not None
    assert {"READ", "WRITE", "DESCRIBE"} <= topic.operations
    config = cluster.topic_config(name)
    assert (config["retention.ms"], config["max.message.bytes"]) == ("77777", "88888")
    assert name in cluster.topic_names()


def test_a_topic_that_kafka_refuses_is_an_error(cluster: Cluster) -> None:
    with pytest.raises(WindowConsumerError, match="topic a b"):
        cluster.create([NewCopyTopic("a b", 1, 1, {})])
    cluster.create([])


def test_missing_topics_are_left_out(cluster: Cluster, unique_name: Name) -> None:
    assert cluster.topics([unique_name("nowhere")]) == {}
    assert cluster.topics([]) == {}


def test_what_may_not_be_seen_is_not_permitted(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic = make_topic("orders")
    bob = logged_in(kafka, "bob")
    with pytest.raises(NotPermittedError, match=f"topic {topic}"):
        bob.topics([topic])
    with pytest.raises(NotPermittedError, match="group"):
        bob.group(unique_name("group"))
    with pytest.raises(NotPermittedError, match=r"topic .*copies"):
        bob.create([NewCopyTopic(unique_name("copies"), 1, 1, {})])
    assert bob.topic_config(topic) == {}
    assert topic not in bob.topic_names()


# ---- groups and limits


def test_a_group_is_described_with_its_members(
    cluster: Cluster,
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Name,
    consumer_of: ConsumerOf,
) -> None:
    topic, group = make_topic("orders"), unique_name("group")
    assert cluster.group(group).members in (None, 0)
    with consumer_of(plain(kafka), **{"group.id": group}) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.05)
        found = cluster.group(group)
    assert found.members == 1
    assert found.operations is not None
    assert "READ" in found.operations
    assert isinstance(found, ConsumerGroup)


def test_the_brokers_limits_are_reported(cluster: Cluster) -> None:
    limits = cluster.broker_config()
    assert limits["offset.metadata.max.bytes"] == "4096"
    assert limits["group.consumer.session.timeout.ms"] == "6000"


def test_the_ends_of_logs_are_reported_without_reading_them(
    cluster: Cluster, kafka: RealKafka, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic = make_topic("orders", 2)
    producer = Producer(plain(kafka))
    for _ in range(3):
        producer.produce(topic, b"v", partition=1)
    producer.flush()
    names = [record.TopicPartition(topic, partition) for partition in (0, 1)]
    assert cluster.log_ends(names) == dict(zip(names, (0, 3), strict=True))
    nowhere = record.TopicPartition(unique_name("nowhere"), 0)
    with pytest.raises(WindowConsumerError, match="log of"):
        cluster.log_ends([nowhere], timeout_s=1.0)


# ---- committed offsets


def test_committed_offsets_are_those_of_the_group(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Name, consumer_of: ConsumerOf
) -> None:
    topic, group = make_topic("orders", 3), unique_name("group")
    with consumer_of(plain(kafka), **{"group.id": group}) as consumer:
        offsets = [TopicPartition(topic, 0, 7), TopicPartition(topic, 2, 0)]
        consumer.commit(offsets=offsets, asynchronous=False)
    assert committed_offsets(plain(kafka), group, topic) == {0: 7, 2: 0}
    assert committed_offsets(plain(kafka), unique_name("group"), topic) == {}


def test_committed_offsets_of_a_missing_topic_are_an_error(
    kafka: RealKafka, unique_name: Name
) -> None:
    with pytest.raises(MissingTopicError, match="shop"):
        committed_offsets(plain(kafka), "shop", unique_name("nowhere"))


def test_committed_offsets_need_a_broker() -> None:
    with pytest.raises(BrokerUnavailableError, match="shop"):
        committed_offsets(NOWHERE, "shop", "orders", timeout_s=0.2)
