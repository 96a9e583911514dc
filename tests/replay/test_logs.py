"""What a log may do to a replay: retention, compaction, transactions, recreated topics."""

from __future__ import annotations

from itertools import count
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import reading, topics
from tests.commands import DEADLINE_S
from tests.conftest import MakeTopic
from tests.integration.test_holes_in_the_log import COMPACTED
from tests.replay.shop import ReplayShop, at, offsets
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker


def deleted(found: dict[str, Any], partition: int = 0) -> list[list[int]]:
    (topic,) = found["topics"]
    spans: list[list[int]] = topic["partitions"][partition]["deleted"]
    return spans


def test_offsets_that_retention_had_deleted_are_named(
    shop: ReplayShop, embedded: EmbeddedBroker
) -> None:
    shop.produce(10)
    embedded.delete_records(shop.source, 0, before=4)
    assert deleted(shop.replay("--from-offset", "0:1")) == [[1, 4]]
    assert deleted(shop.replay("--from", at(0))) == [[0, 4]], "some may have been of the range"
    assert deleted(shop.replay("--from", at(6))) == []
    ended = shop.run("--from-offset", "0:1")
    assert f"{shop.source}[0]" in ended.out
    assert "offsets 1 to 3" in ended.out


def test_a_range_that_is_gone_is_exit_2_and_says_so(
    shop: ReplayShop, embedded: EmbeddedBroker
) -> None:
    shop.produce(10)
    embedded.delete_records(shop.source, 0)
    ended = shop.run("--from", at(0), "--to", at(5))
    assert ended.code == 2
    assert "retention" in ended.err


def test_what_is_deleted_while_a_run_is_cut_short_is_named_when_it_resumes(
    shop: ReplayShop, embedded: EmbeddedBroker
) -> None:
    shop.produce(300)
    command = shop.start("--from-offset", "0:0", "--rate", "20/s")
    shop.wait_for_copies(30)
    command.stop()
    position = max(number for _, number in shop.replayed()) + 1
    embedded.delete_records(shop.source, 0, before=200)
    found = shop.replay("--from-offset", "0:0")
    assert deleted(found) == [[position, 200]]
    assert shop.replayed() == offsets(0, [*range(position), *range(200, 300)])


def test_a_run_whose_rest_is_deleted_is_over(shop: ReplayShop, embedded: EmbeddedBroker) -> None:
    shop.produce(100)
    command = shop.start("--from-offset", "0:0", "--rate", "20/s")
    shop.wait_for_copies(5)
    shop.kill(command)
    embedded.delete_records(shop.source, 0, before=100)
    found = shop.replay("--from-offset", "0:0")
    assert (found["resumed"], found["read"], deleted(found)[0][1]) == (True, 0, 100)
    shop.produce(5, begin=100)
    found = shop.replay("--from-offset", "0:0")
    assert (found["resumed"], found["replayed"]) == (False, 5)


def test_a_compacted_topic_is_replayed_as_it_is_and_its_holes_are_no_loss(
    kafka_shop: ReplayShop, make_topic: MakeTopic
) -> None:
    shop = kafka_shop
    shop.source = make_topic("orders", 1, COMPACTED)
    shop.configure()
    producer, closing = Producer(shop.client), count(1)
    for number in range(100):
        producer.produce(shop.source, b"%d" % number, b"k%d" % (number % 7))

    def is_compacted() -> bool:
        producer.produce(shop.source, b"another", b"closes %d" % (number := next(closing)))
        assert producer.flush(DEADLINE_S) == 0
        return len(reading.read_all(shop.client, shop.source)) == 7 + number

    wait_until(is_compacted, DEADLINE_S, "compaction")
    left = [each.offset() for each in reading.read_all(shop.client, shop.source)]
    found = shop.replay("--from-offset", "0:0")
    assert shop.replayed() == offsets(0, left)
    assert deleted(found) == []


def test_committed_transactions_are_replayed_and_aborted_ones_are_not(
    kafka_shop: ReplayShop,
) -> None:
    shop = kafka_shop
    producer = Producer({**shop.client, "transactional.id": shop.group})
    producer.init_transactions(DEADLINE_S)
    for commit in (True, False, True):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(shop.source, b"v", b"k", 0)
        producer.flush(DEADLINE_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE_S)
    wait_until(
        lambda: reading.spans(shop.client, shop.source)[0].end == 12, DEADLINE_S, "the markers"
    )
    found = shop.replay("--from-offset", "0:0")
    assert shop.replayed() == offsets(0, [0, 1, 2, 8, 9, 10])
    assert (found["complete"], deleted(found)) == (True, [])
    again = shop.replay("--from-offset", "0:0")
    assert not again["resumed"], "the marker at the end is behind the finished run"


def test_an_unfinished_run_of_an_earlier_topic_is_not_resumed(kafka_shop: ReplayShop) -> None:
    shop = kafka_shop
    shop.produce(300)
    command = shop.start("--from-offset", "0:0", "--rate", "20/s")
    shop.wait_for_copies(10)
    shop.kill(command)
    before = len(shop.copies())
    topics.make_anew(AdminClient(shop.client), NewTopic(shop.source, 2, 1))
    shop.produce(20)
    found = shop.replay("--from-offset", "0:0")
    assert (found["resumed"], found["replayed"]) == (False, 20)
    assert len(shop.copies()) == before + 20


def test_a_topic_that_is_recreated_on_the_way_ends_the_run(kafka_shop: ReplayShop) -> None:
    shop = kafka_shop
    shop.produce(300)
    command = shop.start("--from-offset", "0:0", "--rate", "40/s")
    shop.wait_for_copies(10)
    topics.make_anew(AdminClient(shop.client), NewTopic(shop.source, 2, 1))
    shop.produce(300)
    ended = command.wait()
    assert ended.code == 1, ended.said
    assert shop.source in ended.err


def test_a_rate_is_kept_within_five_percent(shop: ReplayShop) -> None:
    shop.produce(1_200)
    shop.replay("--from-offset", "0:0", "--rate", "300/s")
    times = sorted(each.timestamp()[1] for each in shop.copies())
    rate = (len(times) - 1) / (times[-1] - times[0]) * 1000
    assert abs(rate / 300 - 1) <= 0.05


def test_a_copy_that_is_too_large_is_named_left_and_counted(kafka_shop: ReplayShop) -> None:
    shop = kafka_shop
    limited = NewTopic(shop.entry, 2, 1, config={"max.message.bytes": "50000"})
    topics.make(AdminClient(shop.client), limited)
    shop.produce(30, value=lambda number: b"x" * (100_000 if number == 12 else 10))
    ended = shop.run("--from-offset", "0:0", "--json")
    assert ended.code == 1
    assert (ended.json["replayed"], ended.json["refused"]) == (29, 1)
    assert f"{shop.source}/0/12" in ended.json["topics"][0]["reasons"][0]


def test_an_entry_topic_that_may_not_be_made_is_exit_2_with_the_command(
    kafka_shop: ReplayShop,
) -> None:
    shop = kafka_shop
    shop.produce(3)
    charge = {"topics": [shop.source], "group": shop.group}
    config = {"kafka": shop.kafka, "workers": {"charge": charge}, "topics": {"create": False}}
    shop.commands.configure(config)
    ended = shop.run("--from-offset", "0:0")
    assert ended.code == 2
    assert f"--create --topic {shop.entry} --partitions 2" in ended.err
    assert not shop.copies()
