"""What Kafka is asked for an audit's report: who has read all, and what is compacted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from decimal import Decimal

from confluent_kafka import Consumer, Producer, TopicPartition

from window_consumer.audit.commands.kafka_state import GroupOffsets, HeldRun, beyond, standing
from window_consumer.audit.commands.progress import clipped
from window_consumer.engine.commits.commit_metadata import CommitNote, encode
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


def test_what_a_group_has_not_finished_is_reported_by_its_commits(
    kafka: RealKafka, make_topic: MakeTopic, consumer_of: ConsumerOf
) -> None:
    """... what lies between finished records, and what it has not read although it is old."""
    orders = make_topic("orders", 3)
    client = {"bootstrap.servers": kafka.bootstrap}
    producer = Producer(client)
    for timestamp in [1000] * 8 + [2000] * 2:
        for partition in (0, 1, 2):
            producer.produce(orders, b"1", partition=partition, timestamp=timestamp)
    assert producer.flush(60) == 0
    note = CommitNote(next_offset=3, topic_hash=7, finished=(range(4, 5), range(6, 7)))
    metadata, _ = encode(note)
    with consumer_of(client, **{"group.id": "readers"}) as consumer:
        read = [TopicPartition(orders, each, 3, metadata) for each in (0, 1)]
        read[1].offset = 9  # moved by hand: the metadata is that of another offset
        consumer.commit(offsets=read, asynchronous=False)
    found = standing([(orders, "readers")], client, LOG, until_ms=2000)
    assert found.problem is None
    assert [row[1:] for row in found.held] == [
        (orders, 0, Decimal(7), 3, 4, False),
        (orders, 0, Decimal(7), 5, 6, False),
        (orders, 0, Decimal(7), 7, 8, True),
    ]
    found = standing([(orders, "readers")], client, LOG)
    assert [row[2:] for row in found.held if row[-1]] == [
        (0, Decimal(7), 7, 10, True),
        (1, Decimal(0), 9, 10, True),
    ]


def test_a_cluster_that_is_away_is_a_problem_and_no_error() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    found = standing([("orders", "readers")], nowhere, LOG, deadline_s=2.0)
    assert (found.caught_up, found.compacted) == ((), ())
    assert "127.0.0.1:1" in (found.problem or "")


def run(first: int, stop: int, partition: int = 0) -> HeldRun:
    return ("readers", "orders", partition, Decimal(7), first, stop, False)


def test_what_was_held_at_either_time_counts_once() -> None:
    earlier = GroupOffsets(held=(run(3, 8), run(1, 2, 1)))
    later = GroupOffsets(held=(run(5, 6), run(9, 10)))
    found = later.around(earlier, [("orders", "readers")])
    assert sorted(found.held) == sorted([run(3, 5), run(5, 6), run(6, 8), run(9, 10), run(1, 2, 1)])


def test_a_partition_has_caught_up_if_it_had_before_and_nothing_came() -> None:
    earlier = GroupOffsets(read_to=(("readers", "orders", 0, 5), ("readers", "orders", 1, 5)))
    later = GroupOffsets(
        read_to=(
            ("readers", "orders", 0, 5),
            ("readers", "orders", 1, 6),
            ("readers", "orders", 2, 7),
            ("new", "orders", 0, 5),
        )
    )
    found = later.around(earlier, [("orders", "readers")])
    assert found.caught_up == (("readers", "orders", 0), ("new", "orders", 0))


def test_only_what_a_table_reaches_needs_an_excuse() -> None:
    ends = {run(0, 0)[:4]: 6}
    assert list(clipped([run(2, 4), run(5, 9), run(7, 8), run(1, 2, 1)], ends)) == [
        run(2, 4),
        run(5, 6),
    ]
    assert list(beyond([run(2, 9)], [run(4, 5)])) == [run(2, 4), run(5, 9)]
