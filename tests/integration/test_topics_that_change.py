"""Topics that are made anew, get partitions or appear while a worker runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from threading import Event

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.integration.conftest import ShopOn, protocol_settings
from tests.integration.shop import DEADLINE_S, Shop, fails_on
from window_consumer import Record
from window_consumer.kafka.embedded import NewRecord
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.guarantees import NoDuplicates


def make_anew(shop: Shop, partitions: int, values: Iterable[int] = ()) -> None:
    """Delete a topic, make it again and write values to its first partition, all at once."""
    new = NewTopic(shop.topic, num_partitions=partitions, replication_factor=1)
    topics.make_anew(AdminClient(shop.plain), new)
    shop.produced.clear()
    shop.produce(values, partition=0)


def add_partitions(shop: Shop, total: int) -> None:
    topics.widen(AdminClient(shop.plain), shop.topic, total)


def values(shop: Shop, since: int = 0) -> list[int]:
    return sorted(int(call.value or b"") for call in shop.calls[since:])


# ---- made anew


def test_a_level_that_is_deleted_while_its_worker_runs_is_made_again(shop: ShopOn) -> None:
    orders = shop(1)
    level = f"{orders.group}.{orders.topic}.retry.100ms"

    def fail_at_first(record: Record) -> None:
        if record.attempt == 1:
            raise ValueError(record.value)

    orders.behave = fail_at_first
    retry = {"attempts": 1, "levels": ["100ms"]}
    with orders.running(kafka={"topic.metadata.refresh.interval.ms": 1000}, retry=retry):
        orders.produce([1])
        orders.until_called(2)
        orders.until_committed()
        orders.delete_topic(level)
        orders.produce([2])
        orders.until_called(4)
        orders.until_committed()
    assert [call.topic for call in orders.calls] == [orders.topic, level] * 2
    assert orders.dead_letters() == []


@pytest.mark.parametrize("on_no_offset", ["earliest", "latest"])
def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    shop: ShopOn, protocol: str, on_no_offset: str
) -> None:
    orders = shop(2)
    with orders.running(kafka=protocol_settings(protocol), on_no_offset=on_no_offset):
        orders.until_reading()
        orders.until_committed()
        orders.produce(range(100), partition=0)
        orders.produce(range(100, 200), partition=1)
        orders.until_committed()
        make_anew(orders, 2, range(200, 250))
        orders.until_called(250)
        orders.until_committed()
    assert values(orders) == list(range(250))
    assert orders.log.of(LogEvent.TOPIC_RECREATED)
    assert orders.violations() == []


def test_what_still_runs_for_the_old_topic_commits_nothing_to_the_new_one(
    shop: ShopOn, protocol: str
) -> None:
    orders, go_on = shop(1), Event()
    orders.produce(range(100))

    def behave(record: Record) -> None:
        if record.value == b"50":
            go_on.wait(DEADLINE_S)

    orders.behave = behave
    with orders.running(kafka=protocol_settings(protocol)):
        orders.until_called(100)
        make_anew(orders, 1)
        orders.until_logged(LogEvent.TOPIC_RECREATED, about=orders.topic)
        orders.until_logged(LogEvent.CALL_OUTLIVED, topic=orders.topic, partition=0, offset=50)
        go_on.set()
        assert orders.committed().get(0, 0) == 0
        orders.produce(range(100, 110))
        orders.until_committed()
    assert values(orders) == list(range(110))
    assert orders.violations() == []


def test_a_topic_that_was_made_anew_while_nobody_ran_is_read_from_its_beginning(
    shop: ShopOn,
) -> None:
    orders = shop(1)
    orders.produce(range(100))
    with orders.running():
        orders.until_committed()
    make_anew(orders, 1, range(100, 110))
    with orders.running():
        orders.until_committed()
    assert values(orders) == list(range(110))
    assert orders.violations() == []


def test_an_offset_that_survived_its_topic_is_not_used_for_the_new_one(shop: ShopOn) -> None:
    """As a backup of the offsets does it that is restored: the topic's id gives it away."""
    orders = shop(1)
    orders.produce(range(100))
    with orders.running():
        orders.until_committed()
    ours = orders.metadata() or ""
    make_anew(orders, 1, range(100, 210))
    orders.commit_by_hand(100, metadata=ours)
    with orders.running():
        orders.until_committed()
        orders.until_called(210)
    assert values(orders) == list(range(210))
    assert orders.log.of(LogEvent.TOPIC_RECREATED)


# ---- partitions that are added


@pytest.mark.parametrize("on_no_offset", ["earliest", "latest"])
def test_partitions_that_are_added_are_read_from_their_beginning(
    shop: ShopOn, protocol: str, on_no_offset: str
) -> None:
    orders = shop(1)
    with orders.running(kafka=protocol_settings(protocol), on_no_offset=on_no_offset):
        orders.until_reading()
        orders.until_committed()
        add_partitions(orders, 3)
        for partition in range(3):
            orders.produce(range(20), partition=partition)
        orders.until_committed()
    assert orders.violations(NoDuplicates()) == []


def test_partitions_that_were_added_while_nobody_ran_are_read_from_their_beginning(
    shop: ShopOn,
) -> None:
    orders = shop(1)
    with orders.running(on_no_offset="latest"):
        orders.until_reading()
        orders.until(lambda: orders.committed() == {0: 0}, "the start is committed")
    add_partitions(orders, 3)
    for partition in range(3):
        orders.produce(range(20), partition=partition)
    with orders.running(on_no_offset="latest"):
        orders.until_committed()
    assert orders.violations(NoDuplicates()) == []


def test_dead_letters_of_an_added_partition_find_a_place(shop: ShopOn) -> None:
    """The dead-letter topic has as many partitions as the source had: the key decides now."""
    orders = shop(1)
    orders.behave = fails_on(b"bad")
    with orders.running(kafka=protocol_settings("consumer"), retry={"attempts": 1}):
        orders.until_reading()
        add_partitions(orders, 3)
        orders.write(NewRecord(b"bad", b"k", (), partition) for partition in range(3))
        orders.until_committed()
    assert len(orders.dead_letters()) == 3
    assert orders.violations(NoDuplicates(), copies=True) == []


# ---- patterns


def test_topics_that_appear_and_match_are_read_and_dead_letter_topics_are_not(
    shop: ShopOn, protocol: str
) -> None:
    orders = shop(1)
    prefix = f"{orders.topic}."
    first, later, other = f"{prefix}first", f"{prefix}later", f"x.{prefix}other"
    orders.create_topic(first)
    orders.behave = fails_on(b"bad")
    pattern = "^" + prefix.replace(".", "[.]")
    anything = f"{orders.group}.*{orders.topic}"
    with orders.running(
        patterns=[pattern, "^" + anything],
        on_no_offset="latest",  # meant for what was there before
        kafka=protocol_settings(protocol),
        retry={"attempts": 1},
    ):
        orders.until_logged(LogEvent.PARTITIONS_ASSIGNED, about=f"{first}[0]")
        orders.write([NewRecord(b"1"), NewRecord(b"bad")], first)
        orders.create_topic(later)
        orders.create_topic(other)
        orders.create_topic(f"{orders.group}.{later}.retry.10s")
        orders.write([NewRecord(b"x")], other)
        orders.write([NewRecord(b"2"), NewRecord(b"bad")], later)
        orders.until_called(4)
        orders.until_logged(LogEvent.PARTITIONS_ASSIGNED, about=f"{later}[0]")
    seen = sorted((call.topic, call.value) for call in orders.calls)
    assert seen == [(first, b"1"), (first, b"bad"), (later, b"2"), (later, b"bad")]


def test_matches_that_cannot_be_read_hide_no_other_from_a_worker_that_waited_for_one(
    shop: ShopOn, protocol: str
) -> None:
    """Nothing matches at first; then a topic whose dead-letter topic would have too long a name."""
    orders = shop(1)
    prefix = f"{orders.topic}-"
    patterns = ["^" + prefix]
    too_long = prefix + "x" * (249 - len(prefix))
    with orders.running(patterns=patterns, kafka=protocol_settings(protocol)):
        orders.until_logged(LogEvent.PARTITIONS_ASSIGNED, partitions=0)
        orders.create_topic(too_long)
        orders.topic = f"{prefix}first"
        orders.create_topic(orders.topic)
        orders.produce(range(30))
        orders.until_logged(LogEvent.TOPIC_REFUSED, about=too_long)
        orders.until_committed()
        make_anew(orders, 1, range(30, 75))
        orders.until(lambda: set(values(orders)) == set(range(75)), "each value was delivered")
        orders.until_committed()
        orders.topic = f"{prefix}second"
        orders.create_topic(orders.topic)
        orders.produce(range(75, 80))
        orders.until_committed()
    times = Counter(values(orders))
    assert times.keys() == set(range(80))
    # The client's position in the old log, 30, also exists in the new one: the records from there
    # on may run once before the worker notices, see "Topics that are recreated".
    assert {value: n for value, n in times.items() if n > 1}.items() <= {
        (value, 2) for value in range(60, 75)
    }
    assert len(orders.log.containing(f"topic {too_long}")) == 1
