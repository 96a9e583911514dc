"""``rewind`` on the embedded broker and on Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import reading, topics
from tests.commands import DEADLINE_S, Ended
from tests.replay.shop import T0, ReplayShop, at
from tests.waiting import wait_until
from window_consumer.engine.commits.commit_metadata import CommitNote, encode
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
from window_consumer import App, Record

app = App("shop")


@app.handler()
def charge(order: Record) -> None:
    print(f"charged {order.partition}/{order.offset}", flush=True)
"""


def run(shop: ReplayShop, *options: str) -> Ended:
    return shop.commands.run("rewind", "--worker", "charge", *options)


def rewound(shop: ReplayShop, *options: str) -> dict[str, Any]:
    ended = run(shop, "--json", *options)
    assert ended.code == 0, ended.said
    found: dict[str, Any] = ended.json
    return found


def commit(shop: ReplayShop, offsets: Mapping[int, int], metadata: str = "") -> None:
    consumer = Consumer({**shop.client, "group.id": shop.group})
    wanted = [TopicPartition(shop.source, *each, metadata) for each in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def committed(shop: ReplayShop) -> dict[int, int]:
    return reading.committed(shop.client, shop.group, shop.source)


@pytest.fixture(params=["shop", pytest.param("kafka_shop", marks=pytest.mark.kafka)])
def stopped(request: pytest.FixtureRequest) -> ReplayShop:
    """A shop whose group has finished ten records of both partitions, on each kind of broker."""
    shop: ReplayShop = request.getfixturevalue(request.param)
    for partition in range(2):
        shop.produce(10, partition=partition)
    commit(shop, {0: 10, 1: 8}, "done beyond")
    return shop


def test_a_group_goes_back_to_a_time(stopped: ReplayShop) -> None:
    found = rewound(stopped, "--to", at(4))
    assert committed(stopped) == {0: 4, 1: 4}
    assert [(each["from"], each["to"], each["forward"]) for each in found["partitions"]] == [
        (10, 4, False),
        (8, 4, False),
    ]
    assert rewound(stopped, "--to", at(4))["partitions"] == [], "it is there already"


def test_a_group_goes_back_to_offsets_and_other_partitions_stay(stopped: ReplayShop) -> None:
    rewound(stopped, "--to", "1:3")
    assert committed(stopped) == {0: 10, 1: 3}
    rewound(stopped, "--to", "0:1,1:0")
    assert committed(stopped) == {0: 1, 1: 0}


def test_a_dry_run_says_what_lies_between_and_changes_nothing(stopped: ReplayShop) -> None:
    found = rewound(stopped, "--to", at(4), "--dry-run")
    assert committed(stopped) == {0: 10, 1: 8}
    first, second = found["partitions"]
    assert (first["records"], second["records"], found["records"]) == (6, 4, 10)
    assert first["bytes"] == 6 * len(b"key 4") + 4 * len(b"value 4"), "two are tombstones"
    assert first["first_time"] == "2026-09-21T14:13:24.000Z"
    assert first["last_time"] == "2026-09-21T14:13:29.000Z"
    assert T0 // 1000 % 60 == 20
    text = run(stopped, "--to", at(4), "--dry-run").out
    assert f"{stopped.source}[0]" in text
    assert "from 10 to 4: 6 records" in text


def test_what_was_done_beyond_the_offset_is_called_again_too(stopped: ReplayShop) -> None:
    done, _ = encode(CommitNote(5, finished=(range(6, 8), range(9, 10))))
    commit(stopped, {0: 5}, done)
    (found,) = rewound(stopped, "--to", "0:5", "--dry-run")["partitions"]
    assert (found["from"], found["to"], found["records"]) == (5, 5, 3)
    (found,) = rewound(stopped, "--to", "0:3", "--dry-run")["partitions"]
    assert (found["to"], found["records"]) == (3, 5)
    (found,) = rewound(stopped, "--to", "0:8", "--skip", "--dry-run")["partitions"]
    assert (found["to"], found["records"]) == (8, 1), "6 and 7 were done"
    rewound(stopped, "--to", "0:5")
    assert rewound(stopped, "--to", "0:5")["partitions"] == [], "nothing is done beyond any more"


def test_a_skip_leaves_what_was_done_beyond_it_done(stopped: ReplayShop) -> None:
    done, _ = encode(CommitNote(5, finished=(range(6, 8), range(9, 10)), known_partitions=2))
    commit(stopped, {0: 5}, done)
    stopped.commands.application(SHOP)
    rewound(stopped, "--to", "0:7,1:10", "--skip")
    worker = stopped.commands.start("run", "shop:app")
    worker.wait_for("charged 0/8")
    stopped.produce(1, partition=0, begin=10)
    worker.wait_for("charged 0/10")
    ended = worker.stop()
    called = sorted(line for line in ended.out.splitlines() if line.startswith("charged"))
    assert called == ["charged 0/10", "charged 0/8"]


def test_a_topic_that_is_recreated_after_a_rewind_begins_at_its_first_record(
    kafka_shop: ReplayShop,
) -> None:
    shop = kafka_shop
    shop.commands.application(SHOP)
    shop.produce(6)
    commit(shop, {0: 6})
    rewound(shop, "--to", "0:3")
    topics.make_anew(AdminClient(shop.client), NewTopic(shop.source, 2, 1))
    shop.produce(5)
    worker = shop.commands.start("run", "shop:app")
    worker.wait_for("charged 0/4")
    assert worker.stop().out.count("charged") == 5


def test_the_commit_of_an_earlier_topic_counts_for_nothing(kafka_shop: ReplayShop) -> None:
    shop = kafka_shop
    shop.commands.application(SHOP)
    shop.produce(6)
    commit(shop, {0: 6})
    rewound(shop, "--to", "0:3")
    topics.make_anew(AdminClient(shop.client), NewTopic(shop.source, 2, 1))
    shop.produce(5)
    (found,) = rewound(shop, "--to", "0:3")["partitions"]
    assert (found["from"], found["to"]) == (None, 3)
    worker = shop.commands.start("run", "shop:app")
    worker.wait_for("charged 0/4")
    assert worker.stop().out.count("charged") == 2


def test_a_commit_that_a_mirror_translated_is_where_the_group_stands(
    kafka_shop: ReplayShop,
) -> None:
    shop = kafka_shop
    shop.produce(6)
    commit(shop, {0: 4}, encode(CommitNote(7, topic_hash=78, finished=(range(8, 9),)))[0])
    (found,) = rewound(shop, "--to", "0:3")["partitions"]
    assert (found["from"], found["to"]) == (4, 3)


def test_forward_only_with_skip(stopped: ReplayShop) -> None:
    refused = run(stopped, "--to", "0:4,1:9")
    assert refused.code == 2
    assert "--skip" in refused.err
    assert committed(stopped) == {0: 10, 1: 8}, "none is moved"
    found = rewound(stopped, "--to", "0:4,1:9", "--skip")
    assert [each["forward"] for each in found["partitions"]] == [False, True]
    assert committed(stopped) == {0: 4, 1: 9}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--to"),
        (("--to", "yesterday"), "yesterday"),
        (("--to", "0:-1"), "0:-1"),
        (("--to", "0:1", "--to", "0:2"), "partition 0"),
        (("--to", "0:1", "--to", "1h"), "not both"),
        (("--to", "5:1"), "partition 5"),
        (("--to", "0:99"), "ends at"),
        (("--to", "0:1", "--topic", "unknown"), "unknown"),
        (("--to", "0:1", "--worker", "unknown"), "unknown"),
    ],
)
def test_what_cannot_be_done_is_exit_2_and_says_why(
    options: tuple[str, ...], said: str, shop: ReplayShop
) -> None:
    shop.produce(3)
    ended = run(shop, *options)
    assert ended.code == 2, ended.said
    assert said in ended.err


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_runs_is_exit_2_with_its_members(
    kafka_shop: ReplayShop, protocol: str
) -> None:
    shop = kafka_shop
    shop.kafka = {**shop.kafka, "consumer": {"group.protocol": protocol}}
    shop.configure()
    shop.commands.application(SHOP)
    shop.produce(3)
    worker = shop.commands.start("run", "shop:app")
    worker.wait_for("charged 0/2")
    ended = run(shop, "--to", "0:0")
    assert ended.code == 2
    assert "running" in ended.err
    assert "charge" in ended.err
    assert "127.0.0.1" in ended.err
    assert worker.stop().code == 0
    rewound(shop, "--to", "0:1")
    again = shop.commands.start("run", "shop:app")
    again.wait_for("charged 0/2")
    assert again.stop().line_of(LogEvent.WORKER_STOPPED)["processed"] == 2


def test_a_group_that_runs_on_the_embedded_broker_is_exit_2(shop: ReplayShop) -> None:
    shop.commands.application(SHOP)
    shop.produce(3)
    worker = shop.commands.start("run", "shop:app")
    # The broker tells of no members; it refuses the offsets.
    wait_until(lambda: committed(shop).get(0) == 3, DEADLINE_S, "the commit")
    ended = run(shop, "--to", "0:0")
    assert ended.code == 2
    assert "running" in ended.err
    assert worker.stop().code == 0


def test_offsets_that_retention_has_deleted_are_named(
    shop: ReplayShop, embedded: EmbeddedBroker
) -> None:
    shop.produce(10)
    commit(shop, {0: 9})
    embedded.delete_records(shop.source, 0, before=5)
    (partition,) = rewound(shop, "--to", "0:2")["partitions"]
    assert partition["deleted"] == [2, 5]
    assert committed(shop) == {0: 5}
