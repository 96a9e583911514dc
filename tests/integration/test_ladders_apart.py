"""Ladders of several groups on one cluster: nobody reads what another group has put aside."""

from __future__ import annotations

from attrs import evolve

from tests.integration.conftest import ShopOn
from tests.integration.retry_topics import RetryTopics
from tests.integration.shop import LogLines, Shop
from tests.integration.test_retry_levels import fails, fails_until, ladder, until_reading
from window_consumer.kafka.embedded import NewRecord
from window_consumer.testing.guarantees import NoDuplicates


def test_two_groups_on_one_topic_do_not_see_each_others_ladder(shop: ShopOn) -> None:
    one = shop(2)
    two = evolve(one, group=f"{one.group}-2", calls=[], events=[], produced=[], log=LogLines())
    one.behave = two.behave = fails
    ladders = {each.group: RetryTopics.of(each, "300ms") for each in (one, two)}
    with one.running(**ladder("300ms")), two.running(**ladder("300ms")):
        for each in (one, two):
            until_reading(each, ladders[each.group])
        one.produce(range(20), keys=20)
        for each in (one, two):
            each.until_called(40)
            each.until(ladders[each.group].are_drained, "source and levels are committed")
    for each in (one, two):
        topics = ladders[each.group]
        own = {each.topic, topics.name("300ms")}
        assert {call.topic for call in each.calls} == own
        assert sorted(call.attempt for call in each.calls) == [1] * 20 + [2] * 20
        assert len(topics.copies("300ms")) == len(topics.dead_letters()) == 20
        assert topics.violations(each, NoDuplicates()) == []


def strangers(orders: Shop) -> list[str]:
    """Return topics of ladders with the topic's name in theirs, which a pattern could match."""
    other, gone = f"other-{orders.topic}", f"gone-{orders.topic}"
    return [
        f"{other}.{orders.topic}.retry.10s",
        f"{other}.{orders.topic}.retry.now",
        f"{other}.{orders.topic}.dlq",
        f"{other}.dlq.state",
        f"{orders.group}.dlq.state",
        # Of a source that was deleted, and of a level that was taken out before.
        f"{orders.group}.{gone}.retry.300ms",
        f"{orders.group}.{gone}.retry.7m",
        f"{orders.group}.{gone}.retry.now",
        f"{orders.group}.{gone}.dlq",
    ]


def test_no_pattern_matches_a_topic_of_a_ladder(shop: ShopOn) -> None:
    """The group's name contains the topic's, so that a pattern fits all topics of all ladders."""
    orders = shop(1)
    orders.group = f"{orders.topic}-group"
    topics = RetryTopics.of(orders, "300ms")
    orders.behave = fails_until(2)
    for name in strangers(orders):
        orders.create_topic(name)
        orders.write([NewRecord(b"not ours", b"k")], name)
    orders.produced.clear()
    with orders.running(patterns=[f"^.*{orders.topic}"], **ladder("300ms")):
        until_reading(orders, topics)
        orders.produce(range(5), keys=5)
        orders.until_called(10)
        orders.until(topics.are_drained, "source and levels are committed")
    assert {call.topic for call in orders.calls} == {orders.topic, topics.name("300ms")}
    assert topics.violations(orders, NoDuplicates()) == []
