"""Rebalances in groups as Kafka makes them by default.

The other tests' Kafka tells members of a change within half a second. By default a member hears of
it up to five seconds later (classic: three), and goes on reading meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.reader import Reader
from tests.conformance.stages import KafkaStage
from tests.integration.conftest import ShopOn
from tests.integration.shop import Shop
from tests.shared_kafka import NEVER_FENCED
from window_consumer import Record
from window_consumer.kafka.embedded import NewRecord
from window_consumer.model.record import TopicPartition
from window_consumer.testing.guarantees import NoDuplicates
from window_consumer.testing.real_kafka import KafkaUnavailableError, RealKafka
from window_consumer.testing.real_kafka_settings import USUAL_GROUPS


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A Kafka whose groups have the usual times."""
    settings = {**NEVER_FENCED, **USUAL_GROUPS}
    try:
        started = RealKafka.start(tmp_path_factory.mktemp("usual"), settings)
    except KafkaUnavailableError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI has to have a real Kafka: {error}")
        pytest.skip(f"no real Kafka: {error}")
    with started:
        yield started


def slowly(_: Record) -> None:
    time.sleep(0.001)


def usual(protocol: str) -> dict[str, Any]:
    return {"group.protocol": protocol, "topic.metadata.refresh.interval.ms": 1000}


def test_records_that_were_fetched_of_a_dropped_topic_keep_its_name(
    kafka: RealKafka, unique_name: Callable[[str], str]
) -> None:
    stage = KafkaStage(unique_name, kafka, "consumer")
    kept, dropped = stage.topic(1), stage.topic(1)
    stage.write(kept, *[b"v"] * 5)
    stage.write(dropped, *[b"v"] * 50)
    reader = Reader(stage.source(unique_name("group")))
    reader.max_records = 1
    reader.source.subscribe([kept, dropped], reader)
    reader.until(lambda: len(reader.held) == 2)
    reader.read(TopicPartition(dropped, 0), 10)
    reader.source.subscribe([kept], reader)
    reader.until(lambda: len(reader.held) == 1)
    assert reader.read(TopicPartition(kept, 0), 5) == [0, 1, 2, 3, 4]
    stage.close()


def test_a_pattern_worker_whose_topics_shrink_to_one_loses_nothing(
    shop: ShopOn, protocol: str
) -> None:
    orders = shop(1)
    gone = f"{orders.topic}.gone"
    orders.create_topic(gone)
    orders.behave = slowly
    orders.write([NewRecord(b"%d" % number) for number in range(20_000)], gone)
    orders.produced.clear()
    pattern = "^" + orders.topic.replace(".", "[.]")
    with orders.running(patterns=[pattern], concurrency=2, kafka=usual(protocol)):
        orders.until_said(f"{gone}[0]")
        orders.until_called(500)
        orders.delete_topic(gone)
        orders.produce(range(25))
        orders.until_said("topics changed: 0 new, 1 gone")
        orders.until(lambda: called(orders) >= 25, "all of what is left")
        orders.until_committed()
    assert called(orders) == 25
    assert orders.log.containing("a bug") == []


def called(orders: Shop) -> int:
    return sum(call.topic == orders.topic for call in list(orders.calls))


def test_a_second_member_comes_and_goes_and_nothing_is_lost_or_repeated(
    shop: ShopOn, protocol: str
) -> None:
    orders = shop(4)
    orders.behave = slowly
    orders.produce(range(4_000), keys=40)
    how: dict[str, Any] = {
        "concurrency": 2,
        "ordering": "key",
        "retry": {"on_failure": "overtake"},
        "kafka": usual(protocol),
    }
    with orders.running(**how):
        orders.until_called(500)
        said = len(orders.log.containing("reads 2 partitions"))
        with orders.running(**how):
            orders.until_said("reads 2 partitions", times=said + 1)
            orders.produce(range(4_000, 8_000), keys=40)
        orders.until_committed()
    assert orders.violations(NoDuplicates()) == []
