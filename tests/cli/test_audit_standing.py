"""What Kafka is asked for an audit's report: who has read all, and what is compacted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from window_consumer.cli.audit import standing as standing_of_audit
from window_consumer.cli.audit.standing import standing
from window_consumer.kafka.client_log import ClientLog
from window_consumer.testing.real_kafka import RealKafka

LOG = ClientLog(logging.getLogger("window_consumer.client"))
MakeTopic = Callable[..., str]
ConsumerOf = Callable[..., AbstractContextManager[Consumer]]


def test_partitions_that_were_read_to_their_ends_and_compacted_topics_are_named(
    kafka: RealKafka, make_topic: MakeTopic, consumer_of: ConsumerOf
) -> None:
    orders = make_topic("orders", 2)
    latest = make_topic("latest", 1, {"cleanup.policy": "compact,delete"})
    client = {"bootstrap.servers": kafka.bootstrap}
    producer = Producer(client)
    for partition in (0, 1):
        producer.produce(orders, b"1", partition=partition)
    assert producer.flush(60) == 0
    with consumer_of(client, **{"group.id": "readers"}) as consumer:
        read = [TopicPartition(orders, 0, 1), TopicPartition(orders, 1, 0)]
        consumer.commit(offsets=read, asynchronous=False)
    found = standing([(orders, "readers"), (orders, ""), (latest, "")], client, LOG)
    assert found.caught_up == (("readers", orders, 0),)
    assert found.compacted == (latest,)
    assert found.problem is None
    beside = standing([("no-such-topic", "readers"), (orders, "readers")], client, LOG)
    assert beside.caught_up == found.caught_up
    assert "no-such-topic" in (beside.problem or "")


def test_a_cluster_that_is_away_is_a_problem_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standing_of_audit, "_PATIENCE_S", 2.0)
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    found = standing([("orders", "readers")], nowhere, LOG)
    assert (found.caught_up, found.compacted) == ((), ())
    assert "127.0.0.1:1" in (found.problem or "")
