"""A topic that is followed beyond its end, on the embedded broker and on a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Producer

from tests.kafka.test_topic_reader import LOG, plain
from tests.waiting import wait_until
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.kafka.log_follower import LogFollower
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import MissingTopicError
from window_consumer.testing.real_kafka import RealKafka

MakeTopic = Callable[..., str]


@pytest.fixture
def follower(embedded: EmbeddedBroker) -> Iterator[LogFollower]:
    settings = {"bootstrap.servers": embedded.bootstrap}
    ends = partial(Cluster(settings, LOG).log_ends, committed=True)
    with TopicReader(settings, LOG) as reader:
        yield LogFollower(reader, "cancel", ends)


def read(follower: LogFollower) -> list[bytes | None]:
    return sorted(each.value() or b"" for records in follower.to_the_end() for each in records)


def write(broker: EmbeddedBroker, *values: bytes) -> None:
    broker.fill("cancel", [NewRecord(each, each) for each in values])


def test_each_time_it_reads_what_has_come_since(
    embedded: EmbeddedBroker, follower: LogFollower
) -> None:
    embedded.create_topic("cancel", 4)
    assert read(follower) == []
    write(embedded, b"a", b"b", b"c")
    assert read(follower) == [b"a", b"b", b"c"]
    assert read(follower) == []
    write(embedded, b"d")
    assert read(follower) == [b"d"]


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(
    embedded: EmbeddedBroker, follower: LogFollower
) -> None:
    embedded.create_topic("cancel", 2)
    write(embedded, *(b"%d" % number for number in range(20)))
    assert len(read(follower)) == 20
    embedded.delete_topic("cancel")
    with pytest.raises(MissingTopicError):
        read(follower)
    follower.start_over()
    embedded.create_topic("cancel", 2)
    write(embedded, b"new")
    assert read(follower) == [b"new"]


def test_records_that_retention_deleted_are_not_waited_for(
    embedded: EmbeddedBroker, follower: LogFollower
) -> None:
    embedded.create_topic("cancel", 1)
    write(embedded, b"a", b"b")
    embedded.delete_records("cancel", 0)
    assert read(follower) == []
    write(embedded, b"c")
    assert read(follower) == [b"c"]


def test_transactions_count_when_they_are_committed(
    kafka: RealKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic("cancel", 2)
    ends = partial(Cluster(plain(kafka), LOG).log_ends, committed=True)
    producer = Producer({**plain(kafka), "transactional.id": topic})
    producer.init_transactions(30)
    with TopicReader(plain(kafka), LOG) as reader:
        follower = LogFollower(reader, topic, ends)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        producer.flush()
        assert read(follower) == []
        producer.commit_transaction()
        # The markers follow the answer.
        wait_until(lambda: read(follower) == [b"open"], 20.0, "the record counts")
        producer.begin_transaction()
        producer.produce(topic, b"gone", partition=1)
        producer.flush()
        producer.abort_transaction()
        assert read(follower) == []
