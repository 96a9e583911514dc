"""Reading topics to their present end, on the embedded broker and on a real one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.integration.access import Access
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, NewRecord
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import MissingTopicError, WindowConsumerError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import Message, TopicPartition
from window_consumer.testing.real_kafka import RealKafka

LOG = ClientLog(logging.getLogger("window_consumer.client"))
MakeTopic = Callable[..., str]


@pytest.fixture
def reader(embedded: EmbeddedBroker) -> Iterator[TopicReader]:
    with TopicReader({"bootstrap.servers": embedded.bootstrap}, LOG) as reader:
        yield reader


@pytest.fixture
def real_reader(kafka: RealKafka) -> Iterator[TopicReader]:
    with TopicReader(plain(kafka), LOG) as reader:
        yield reader


def plain(kafka: RealKafka) -> dict[str, Any]:
    return {"bootstrap.servers": kafka.bootstrap, "log_level": 0}


def values(reader: TopicReader, spans: dict[TopicPartition, Span]) -> list[bytes]:
    return [message.value() for records in reader.read(spans) for message in records]


def test_all_partitions_are_read_to_their_ends(
    embedded: EmbeddedBroker, reader: TopicReader
) -> None:
    embedded.create_topic("dead", 3)
    embedded.fill("dead", [NewRecord(b"%d" % n, partition=n % 2) for n in range(3000)])
    spans = reader.spans("dead")
    assert [span.count for span in spans.values()] == [1500, 1500, 0]
    assert sorted(values(reader, spans), key=int) == [b"%d" % n for n in range(3000)]
    assert sorted(values(reader, spans), key=int) == [b"%d" % n for n in range(3000)]


def test_what_comes_after_the_spans_were_asked_for_is_not_read(
    embedded: EmbeddedBroker, reader: TopicReader
) -> None:
    embedded.create_topic("dead", 1)
    embedded.produce("dead", b"before")
    spans = reader.spans("dead")
    embedded.produce("dead", b"after")
    assert values(reader, spans) == [b"before"]


def test_a_span_begins_and_ends_where_it_says(
    embedded: EmbeddedBroker, reader: TopicReader
) -> None:
    embedded.create_topic("dead", 1)
    embedded.fill("dead", [NewRecord(b"%d" % n) for n in range(10)])
    name = TopicPartition("dead", 0)
    assert values(reader, {name: Span(3, 6)}) == [b"3", b"4", b"5"]
    assert values(reader, {name: Span(6, 6)}) == []


def test_a_scan_knows_where_its_topics_are_before_it_waits_for_records(
    embedded: EmbeddedBroker, reader: TopicReader
) -> None:
    for topic in ("dead", "another"):
        embedded.create_topic(topic, 1)
    embedded.produce("dead", b"one")
    reader.partitions("another")  # it is connected
    embedded.track_requests()
    scan = reader.scan({TopicPartition("dead", 0): Span(0, 1)})
    asked = embedded.requests()[ApiKey.METADATA]
    assert [each.value() for each in scan.batch()] == [b"one"]
    assert asked, "the client asks by itself only once a second"


def test_a_partition_whose_span_has_ended_yields_nothing_while_others_are_read(
    embedded: EmbeddedBroker, reader: TopicReader
) -> None:
    embedded.create_topic("dead", 3)
    embedded.fill("dead", [NewRecord(b"%d" % n, partition=n % 3) for n in range(15_000)])
    ends = {0: 10, 1: 1_700, 2: 5_000}
    spans = {TopicPartition("dead", each): Span(0, end) for each, end in ends.items()}
    read = [
        (message.partition(), message.offset())
        for records in reader.read(spans)
        for message in records
    ]
    assert sorted(read) == [(each, at) for each, end in ends.items() for at in range(end)]


def test_many_partitions_with_few_records_are_read_to_their_ends(
    embedded: EmbeddedBroker, reader: TopicReader
) -> None:
    embedded.create_topic("dead", 40)
    embedded.fill("dead", [NewRecord(b"%d" % n, partition=n % 40) for n in range(200)])
    ends = {TopicPartition("dead", each): each % 6 for each in range(40)}
    scan = reader.scan({name: Span(0, end) for name, end in ends.items()})
    read = []
    while records := scan.batch(7):
        read += [(message.partition(), message.offset()) for message in records]
    assert sorted(read) == [(name.partition, at) for name in ends for at in range(ends[name])]
    assert scan.positions == {name: end for name, end in ends.items() if end}


def test_a_scan_returns_no_more_than_was_asked_for_and_says_how_far_it_is(
    embedded: EmbeddedBroker, reader: TopicReader
) -> None:
    embedded.create_topic("dead", 1)
    embedded.fill("dead", [NewRecord(b"%d" % n) for n in range(10)])
    name = TopicPartition("dead", 0)
    scan = reader.scan({name: Span(2, 9)})
    found: list[int | None] = []
    while records := scan.batch(3):
        assert len(records) <= 3
        found += [each.offset() for each in records]
        assert scan.positions == {name: (found[-1] or 0) + 1}
    assert found == list(range(2, 9))


def test_one_record_is_found_by_its_place(embedded: EmbeddedBroker, reader: TopicReader) -> None:
    embedded.create_topic("dead", 1)
    embedded.fill("dead", [NewRecord(b"%d" % n) for n in range(5)])
    embedded.delete_records("dead", 0, before=2)
    name = TopicPartition("dead", 0)
    found = reader.at(name, 3)
    assert found is not None
    assert found.value() == b"3"
    assert reader.at(name, 1) is None
    assert reader.at(name, 5) is None
    assert reader.at(TopicPartition("dead", 7), 0) is None


def test_a_missing_topic_is_reported(kafka: RealKafka, real_reader: TopicReader) -> None:
    with pytest.raises(MissingTopicError, match="nowhere"):
        real_reader.spans("nowhere")
    assert "nowhere" not in Cluster(plain(kafka), LOG).topic_names()


def test_a_reader_leaves_no_group_behind_and_needs_no_right_to_one(
    kafka: RealKafka, make_topic: MakeTopic, real_reader: TopicReader
) -> None:
    topic = make_topic("dead")
    produce(plain(kafka), topic, b"1")
    assert values(real_reader, real_reader.spans(topic)) == [b"1"]
    assert Cluster(plain(kafka), LOG).group("window-consumer-reader").members in (None, 0)
    Access(AdminClient(plain(kafka)), "bob").grant("topic", topic, "READ", "DESCRIBE")
    with TopicReader({**kafka.sasl_settings("bob"), "log_level": 0}, LOG) as bobs:
        assert values(bobs, bobs.spans(topic)) == [b"1"]


def test_a_topic_that_may_not_be_read_is_an_error(kafka: RealKafka, make_topic: MakeTopic) -> None:
    topic = make_topic("dead")
    with (
        TopicReader({**kafka.sasl_settings("bob"), "log_level": 0}, LOG) as reader,
        pytest.raises(WindowConsumerError, match=topic),
    ):
        reader.spans(topic)


def test_records_of_aborted_and_open_transactions_are_left_out(
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    real_reader: TopicReader,
) -> None:
    topic = make_topic("dead")
    for outcome in ("commit", "abort", "none"):
        producer = Producer({**plain(kafka), "transactional.id": unique_name(outcome)})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, outcome.encode())
        producer.flush(30)
        if outcome == "commit":
            producer.commit_transaction(30)
        elif outcome == "abort":
            producer.abort_transaction(30)
        else:
            open_one = producer
    assert values(real_reader, settled(real_reader, topic, 4)) == [b"commit"]
    open_one.abort_transaction(30)
    assert values(real_reader, settled(real_reader, topic, 6)) == [b"commit"]


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_scan_may_wait_for_what_lies_behind_an_open_transaction(
    outcome: str,
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    real_reader: TopicReader,
) -> None:
    topic = make_topic("park")
    opened = Producer({**plain(kafka), "transactional.id": unique_name(outcome)})
    opened.init_transactions(30)
    opened.begin_transaction()
    opened.produce(topic, b"opened")
    opened.flush(30)
    later = Producer(plain(kafka))
    later.produce(topic, b"later")
    later.flush(30)
    spans = {TopicPartition(topic, 0): Span(0, 2)}
    assert real_reader.scan(spans).batch() == []
    scan = real_reader.scan(spans, awaits_transactions=True)
    with ThreadPoolExecutor() as thread:
        found = thread.submit(
            lambda: [each.value() for chunk in iter(scan.batch, []) for each in chunk]
        )
        with pytest.raises(TimeoutError):
            found.result(1.0)
        end = opened.commit_transaction if outcome == "commit" else opened.abort_transaction
        end(30)
        assert found.result(60) == ([b"opened", b"later"] if outcome == "commit" else [b"later"])


def settled(reader: TopicReader, topic: str, end: int) -> dict[TopicPartition, Span]:
    """Wait until the markers of transactions are written, which takes a moment after a commit."""
    deadline = time.monotonic() + 60
    while (spans := reader.spans(topic)) != {TopicPartition(topic, 0): Span(0, end)}:
        assert time.monotonic() < deadline, spans
    return spans


def test_what_follows_a_hole_at_the_end_of_a_span_is_not_read(
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    real_reader: TopicReader,
) -> None:
    topic = make_topic("dead")
    producer = Producer({**plain(kafka), "transactional.id": unique_name("tx")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"before")
    producer.commit_transaction(30)
    spans = settled(real_reader, topic, 2)
    produce(plain(kafka), topic, b"after the marker")
    assert values(real_reader, spans) == [b"before"]


def test_offsets_are_found_by_time(
    kafka: RealKafka, make_topic: MakeTopic, real_reader: TopicReader
) -> None:
    topic = make_topic("dead")
    now = int(time.time() * 1000)
    produce(plain(kafka), topic, b"old", timestamp=now - 60_000)
    produce(plain(kafka), topic, b"new", timestamp=now)
    name = TopicPartition(topic, 0)
    assert real_reader.offsets_at([name], now - 61_000) == {name: 0}
    assert real_reader.offsets_at([name], now - 30_000) == {name: 1}
    assert real_reader.offsets_at([name], now + 30_000) == {name: None}


def produce(client: dict[str, Any], topic: str, value: bytes, **more: Any) -> None:
    producer = Producer(client)
    producer.produce(topic, value, **more)
    assert producer.flush(30) == 0


def test_messages_are_those_of_the_client(embedded: EmbeddedBroker, reader: TopicReader) -> None:
    embedded.create_topic("dead", 1)
    embedded.produce("dead", b"v", key=b"k", headers=[("a", b"1")])
    ((message,),) = reader.read(reader.spans("dead"))
    read: Message = message
    assert (read.key(), read.value(), read.headers()) == (b"k", b"v", [("a", b"1")])
