"""Groups without committed offsets, and offsets that an administrator or a stranger wrote."""

from __future__ import annotations

import pytest
from attrs import evolve
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.integration.conftest import ShopOn, protocol_settings
from tests.integration.shop import fails_on
from window_consumer.engine.commits.commit_metadata import decode, encode
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.guarantees import NoDuplicates


def test_a_new_group_begins_with_the_earliest_record(shop: ShopOn) -> None:
    orders = shop(2)
    orders.produce(range(20))
    with orders.running(on_no_offset="earliest"):
        orders.until_committed()
    assert orders.violations() == []


def test_a_new_group_can_begin_with_what_comes_next(shop: ShopOn) -> None:
    orders = shop(1)
    orders.produce(range(10))
    with orders.running(on_no_offset="latest"):
        orders.until_committed()
        orders.produce(range(10, 15))
        orders.until_called(5)
    assert orders.places() == [(0, offset) for offset in range(10, 15)]


def test_a_new_group_that_begins_at_the_end_misses_nothing_while_nobody_runs(shop: ShopOn) -> None:
    orders = shop(1)
    orders.produce(range(10))
    with orders.running(on_no_offset="latest"):
        orders.until_committed()
    assert orders.calls == []
    orders.produce(range(10, 15))
    with orders.running(on_no_offset="latest"):
        orders.until_called(5)
    assert orders.places() == [(0, offset) for offset in range(10, 15)]


def test_a_new_group_can_refuse_to_begin_without_an_offset(shop: ShopOn) -> None:
    orders = shop(1)
    orders.produce(range(10))
    refusal = rf"nothing is committed for {orders.topic}\[0\] and on_no_offset is fail"
    with (
        pytest.raises(WorkerStoppedError, match=refusal),
        orders.running(on_no_offset="fail") as running,
    ):
        assert running.wait(60)
    assert orders.calls == []
    assert orders.committed() == {}
    orders.commit_by_hand(4)
    with orders.running(on_no_offset="fail"):
        orders.until_committed()
    assert orders.places() == [(0, offset) for offset in range(4, 10)]


def test_an_offset_that_was_moved_back_is_where_reading_begins_again(shop: ShopOn) -> None:
    orders = shop(1)
    orders.produce(range(10))
    with orders.running():
        orders.until_committed()
    orders.commit_by_hand(3)
    with orders.running():
        orders.until_called(17)
        orders.until_committed()
    assert orders.places() == sorted((0, n) for n in [*range(10), *range(3, 10)])


def test_an_offset_that_was_moved_forward_skips_what_lies_before(shop: ShopOn) -> None:
    orders = shop(1)
    orders.produce(range(10))
    orders.commit_by_hand(7)
    with orders.running():
        orders.until_committed()
    assert orders.places() == [(0, 7), (0, 8), (0, 9)]


def test_an_offset_cannot_be_moved_while_a_member_runs(shop: ShopOn, protocol: str) -> None:
    orders = shop(1)
    orders.produce(range(10))
    with orders.running(kafka=protocol_settings(protocol)):
        orders.until_committed()
        with orders.outsider() as consumer, pytest.raises(KafkaException) as refusal:
            consumer.commit(offsets=[TopicPartition(orders.topic, 0, 3)], asynchronous=False)
    assert refusal.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert orders.violations(NoDuplicates()) == []


def test_metadata_of_a_stranger_is_ignored(shop: ShopOn) -> None:
    orders = shop(1)
    orders.produce(range(20))
    orders.commit_by_hand(4, metadata="mine!")
    with orders.running():
        orders.until_committed()
    assert orders.places() == [(0, n) for n in range(4, 20)]
    assert len(orders.log.of(LogEvent.COMMIT_METADATA_IGNORED)) == 1


def test_metadata_that_was_copied_onto_another_offset_is_ignored(shop: ShopOn) -> None:
    orders = shop(1)
    orders.behave = fails_on(b"0")
    orders.produce(range(20))
    with orders.running(retry={"backoff": "60s..60s"}):
        orders.until_open(0)
    orders.commit_by_hand(5, metadata=orders.metadata() or "")
    orders.behave = lambda _: None
    with orders.running():
        orders.until_committed()
    assert orders.places(since=20) == [(0, n) for n in range(5, 20)]
    assert len(orders.log.of(LogEvent.COMMIT_RANGES_IGNORED)) == 1


def test_a_mirrored_topic_is_read_from_where_the_mirror_translated_the_offset(shop: ShopOn) -> None:
    orders, mirrored = shop(1), shop(1)
    orders.behave = fails_on(b"4")
    orders.produce(range(20))
    with orders.running(retry={"backoff": "60s..60s"}):
        orders.until_open(4)
    mirrored.produce(range(2, 20))  # the mirror began later
    mirrored.commit_by_hand(2, metadata=orders.metadata() or "")
    with mirrored.running():
        mirrored.until_committed()
    assert mirrored.places() == [(0, n) for n in range(2, 18)], "a mirror's done ranges are others"
    assert mirrored.log.of(LogEvent.TOPIC_RECREATED) == []


def test_a_mirrored_commit_at_its_own_offset_looks_like_that_of_a_recreated_topic(
    shop: ShopOn,
) -> None:
    orders, mirrored = shop(1), shop(1)
    for each in (orders, mirrored):
        each.produce(range(20))
    with orders.running():
        orders.until_committed()
    mirrored.commit_by_hand(20, metadata=orders.metadata() or "")
    with mirrored.running():
        mirrored.until_called(20)
        mirrored.until_committed()
    assert len(mirrored.log.of(LogEvent.TOPIC_RECREATED)) == 1, "it looks like a recreated topic"
    mirrored.commit_by_hand(15)
    with mirrored.running():
        mirrored.until_called(25)
        mirrored.until_committed()
    assert mirrored.places(since=20) == [(0, n) for n in range(15, 20)]


def test_metadata_that_knows_more_than_the_log_holds_is_ignored(shop: ShopOn) -> None:
    orders = shop(1)
    orders.produce(range(20))
    with orders.running():
        orders.until_committed()
    ours = decode(orders.metadata())
    assert ours is not None
    ahead = encode(evolve(ours, next_offset=4, finished=(range(6, 5000),)))[0]
    orders.commit_by_hand(4, metadata=ahead)
    with orders.running():
        orders.until_called(36)
        orders.until_committed()
    assert orders.places(since=20) == [(0, n) for n in range(4, 20)]
    assert len(orders.log.of(LogEvent.COMMIT_RANGES_IGNORED)) == 1
