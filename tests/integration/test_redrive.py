"""``dlq redrive`` on a real Kafka: kills, transactions, the source topic, topics that it makes."""

from __future__ import annotations

import logging
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import pytest
from attrs import define
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests import reading, topics
from tests.commands import DEADLINE_S, Command, Commands, Ended
from tests.conftest import MakeTopic
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Message
from window_consumer.testing.real_kafka import RealKafka

COMPACTED = {"cleanup.policy": "compact"}


@define
class Shop:
    """A worker's topics, its dead letters, and the command line beside them."""

    bootstrap: str
    source: str
    group: str
    commands: Commands
    admin: AdminClient

    @property
    def dead_letters(self) -> str:
        return f"{self.group}.{self.source}.dlq"

    @property
    def entry(self) -> str:
        return f"{self.group}.{self.source}.retry.now"

    @property
    def state(self) -> str:
        return f"{self.group}.dlq.state"

    @property
    def client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "log_level": 0}

    def configure(self, **more: Any) -> None:
        worker = {"topics": [self.source], "group": self.group}
        kafka = {"bootstrap.servers": self.bootstrap}
        self.commands.configure({"kafka": kafka, "workers": {"charge": worker}, **more})

    def make_dead_letter_topic(self, partitions: int = 2) -> None:
        new = NewTopic(self.dead_letters, num_partitions=partitions, replication_factor=1)
        topics.make(self.admin, new)

    def fail(self, count: int, *headers: tuple[str, bytes], value: bytes | None = b"v") -> None:
        """Write dead letters, as a worker does."""
        producer = Producer(self.client)
        for number in range(count):
            ours: list[tuple[str, str | bytes | None]] = [
                ("wc-id", b"id %d" % number),
                ("wc-orig-topic", self.source.encode()),
                ("wc-orig-partition", b"%d" % (number % 2)),
                ("wc-format", b"1"),
                *headers,
            ]
            producer.produce(self.dead_letters, value, b"key %d" % number, number % 2, headers=ours)
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0

    def start(self, *options: str) -> Command:
        return self.commands.start("dlq", "redrive", *options)

    def redrive(self, *options: str) -> dict[str, Any]:
        ended = self.run("--json", *options)
        assert ended.code == 0, ended.err
        (said,) = ended.json["redrives"]
        found: dict[str, Any] = said
        return found

    def run(self, *options: str) -> Ended:
        return self.start(*options).wait()

    def read(self, topic: str) -> list[Message]:
        return reading.read_all(self.client, topic)

    def settings(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource("topic", topic)
        (answer,) = self.admin.describe_configs([resource]).values()
        return {name: entry.value for name, entry in answer.result(DEADLINE_S).items()}

    def has(self, topic: str) -> bool:
        return topic in self.admin.list_topics(timeout=DEADLINE_S).topics

    def wait_for(self, topic: str, count: int) -> None:
        """Return when a topic holds so many records, or more."""
        deadline = time.monotonic() + DEADLINE_S
        while not (self.has(topic) and self.ends(topic) >= count):
            assert time.monotonic() < deadline, f"{topic} does not reach {count} records"

    def ends(self, topic: str) -> int:
        log = ClientLog(logging.getLogger("tests"))
        with TopicReader(self.client, log) as reader:
            return sum(span.end for span in reader.spans(topic).values())


@pytest.fixture
def shop(
    kafka: RealKafka, make_topic: MakeTopic, commands: Commands, unique_name: Callable[[str], str]
) -> Shop:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    shop = Shop(kafka.bootstrap, make_topic("orders", 2), unique_name("shop"), commands, admin)
    shop.configure()
    shop.make_dead_letter_topic()
    return shop


def ids(messages: list[Message]) -> Counter[bytes]:
    return Counter(dict(message.headers())["wc-id"] for message in messages)


def test_topics_are_made_like_dead_letter_topics_and_the_memory_is_compacted(shop: Shop) -> None:
    shop.fail(10)
    assert shop.redrive("--dry-run")["redriven"] == 10
    assert not shop.has(shop.entry)
    assert shop.redrive()["redriven"] == 10
    entry = shop.settings(shop.entry)
    assert entry["cleanup.policy"] == "delete"
    assert entry["retention.ms"] == str(14 * 86_400_000)
    source_limit = int(shop.settings(shop.source)["max.message.bytes"])
    assert int(entry["max.message.bytes"]) == source_limit + 65_536
    assert shop.settings(shop.state)["cleanup.policy"] == "compact"
    for message in shop.read(shop.entry):
        number = int(dict(message.headers())["wc-id"].split()[1])
        assert message.partition() == number % 2
    runs = {b"%s/%d/0-4" % (shop.dead_letters.encode(), partition) for partition in range(2)}
    assert {message.key() for message in shop.read(shop.state)} == runs


def test_topics_that_may_not_be_made_are_exit_2_with_the_commands(shop: Shop) -> None:
    shop.configure(topics={"create": False})
    ended = shop.run()
    assert ended.code == 2
    assert f"--create --topic {shop.entry} --partitions 2" in ended.err
    assert f"--create --topic {shop.state} --partitions 1" in ended.err
    assert "--config cleanup.policy=compact" in ended.err
    assert not shop.has(shop.entry)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_run_that_is_killed_loses_nothing_and_repeats_one_batch_at_most(
    shop: Shop, *, transactional: bool
) -> None:
    count, batch = 1_000, 3
    mode = ["--transactional"] if transactional else []
    shop.fail(count)
    for kill in (1, 2):
        # Half a minute and more before it would be over: so late may it be killed.
        command = shop.start("--rate", str(batch * 10), *mode)
        shop.wait_for(shop.entry, 100 * kill)
        command.signal(signal.SIGKILL)
        command.process.wait(DEADLINE_S)
        assert shop.ends(shop.entry) < count, "it was over before it was killed"
    last = shop.redrive(*mode)
    assert 0 < last["read"] < count, "it went on where the killed ones were"
    seen = ids(shop.read(shop.entry))
    assert len(seen) == count
    repeated = sum(seen.values()) - count
    assert repeated == 0 if transactional else repeated <= 2 * batch
    assert shop.redrive(*mode)["read"] == 0


def test_the_same_redrive_twice_at_once_is_noticed(shop: Shop) -> None:
    shop.fail(400)
    first = shop.start("--rate", "5")  # a minute and more, if nobody stops it
    shop.wait_for(shop.entry, 3)
    second = shop.run()
    ended = [second, first.wait() if second.code == 0 else first.stop()]
    noticed = [each for each in ended if each.code == 1]
    assert noticed
    for each in noticed:
        assert "twice" in each.err
    shop.redrive()
    assert len(ids(shop.read(shop.entry))) == 400


def test_a_second_transactional_run_fences_the_first_and_nothing_repeats(shop: Shop) -> None:
    shop.fail(400)
    first = shop.start("--rate", "5", "--transactional")
    shop.wait_for(shop.entry, 3)
    shop.redrive("--transactional")
    ended = first.wait()
    assert ended.code == 1
    assert "twice" in ended.err
    assert set(ids(shop.read(shop.entry)).values()) == {1}
    assert len(shop.read(shop.entry)) == 400


def test_records_of_aborted_transactions_do_not_go_back(
    shop: Shop, unique_name: Callable[[str], str]
) -> None:
    shop.fail(3)
    producer = Producer({**shop.client, "transactional.id": unique_name("transaction")})
    producer.init_transactions(DEADLINE_S)
    for commit in (False, True):
        producer.begin_transaction()
        producer.produce(shop.dead_letters, b"v", b"k", 0, headers=[("wc-id", b"%d" % commit)])
        assert producer.flush(DEADLINE_S) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE_S)
    shop.wait_for(shop.dead_letters, 3 + 4)  # the markers are there, too
    assert shop.redrive()["redriven"] == 4
    assert ids(shop.read(shop.entry))[b"0"] == 0
    assert shop.redrive()["read"] == 0, "the markers at the end are behind us"


def test_a_dead_letter_topic_that_was_made_anew_begins_anew(shop: Shop) -> None:
    shop.fail(20)
    assert shop.redrive()["redriven"] == 20
    topics.make_anew(shop.admin, NewTopic(shop.dead_letters, 2, 1))
    shop.fail(30)
    said = shop.redrive()
    assert (said["read"], said["redriven"]) == (30, 30)


def test_a_value_that_is_referred_to_comes_from_the_source_topic(shop: Shop) -> None:
    large = bytes(range(256)) * 3_000
    producer = Producer(shop.client)
    producer.produce(shop.source, b"before", partition=1)
    producer.produce(shop.source, large, b"key 0", partition=1)
    assert producer.flush(DEADLINE_S) == 0
    good = f"{shop.source}/1/1 sha256:{sha256(large).hexdigest()}".encode()
    other = f"{shop.source}/1/0 sha256:{sha256(large).hexdigest()}".encode()
    gone = f"{shop.source}/1/9 sha256:{sha256(large).hexdigest()}".encode()
    for reference in (good, other, gone):
        shop.fail(1, ("wc-value-ref", reference), value=None)
    ended = shop.run()
    assert ended.code == 1
    assert re.search(r"\b1 .*\b2 left: .*\bvalues\b", ended.out)
    (message,) = shop.read(shop.entry)
    assert message.value() == large
    assert "wc-value-ref" not in dict(message.headers())


def test_a_copy_that_is_too_large_is_left_and_the_others_go_back(shop: Shop) -> None:
    limited = NewTopic(shop.entry, 2, 1, config={"max.message.bytes": "50000"})
    topics.make(shop.admin, limited)
    shop.fail(200, value=b"x" * 1_000)
    shop.fail(1, value=b"x" * 100_000)
    shop.fail(200, value=b"x" * 1_000)
    ended = shop.run()
    assert ended.code == 1
    assert re.search(r"\b400 .*\b1 left: .*\blarge\b", ended.out)
    assert len(shop.read(shop.entry)) == 400


def test_in_a_transaction_a_copy_that_is_too_large_ends_the_run_and_is_named(shop: Shop) -> None:
    limited = NewTopic(shop.entry, 2, 1, config={"max.message.bytes": "50000"})
    topics.make(shop.admin, limited)
    shop.fail(20, value=b"x" * 1_000)
    shop.fail(1, ("wc-id", b"large"), value=b"x" * 100_000)
    ended = shop.run("--transactional")
    assert ended.code == 1
    assert re.search(rf"\blarge: .*{re.escape(shop.entry)}", ended.err)
    assert "max.message.bytes" in ended.err
    assert "--transactional" in ended.err
    assert shop.read(shop.entry) == shop.read(shop.state) == []


def test_to_source_names_the_other_groups_and_needs_yes(
    shop: Shop, unique_name: Callable[[str], str]
) -> None:
    shop.fail(5, ("wc-tags", b"t"))
    billing = unique_name("billing")
    for group in (billing, shop.group):
        consumer = Consumer({**shop.client, "group.id": group})
        offsets = [ClientPartition(shop.source, 0, 0)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
    refused = shop.run("--to-source")
    assert refused.code == 2
    assert re.search(rf"\b{shop.source} .*: {billing}\b", refused.err)
    assert "--yes" in refused.err
    assert shop.group not in refused.err.replace(shop.dead_letters, "")
    assert not shop.read(shop.source)
    ended = shop.run("--to-source", "--yes")
    assert ended.code == 0
    assert billing in ended.err
    messages = shop.read(shop.source)
    assert len(messages) == 5
    for message in messages:
        assert {name for name, _ in message.headers()} == {"wc-id", "wc-tags", "wc-redrives"}
    assert not shop.has(shop.entry)


def test_a_compacted_source_topic_is_refused(shop: Shop, make_topic: MakeTopic) -> None:
    shop.source = make_topic("orders", 2, COMPACTED)
    shop.configure()
    shop.make_dead_letter_topic()
    shop.fail(5)
    ended = shop.run("--to-source", "--yes")
    assert ended.code == 2
    assert f"{shop.source} is compacted" in ended.err
    assert not shop.read(shop.source)
    assert shop.redrive()["redriven"] == 5, "the group's own topic is not compacted"


APPLICATION = """
from pathlib import Path
from window_consumer import App, Fatal, Record

app = App("shop")


@app.handler()
def charge(order: Record) -> None:
    if not Path("mended").exists():
        raise Fatal("no card")
    print(f"charged {order.text()} of {order.topic}", flush=True)
"""


def test_a_worker_that_runs_meanwhile_handles_what_goes_back(shop: Shop) -> None:
    shop.commands.application(APPLICATION)
    worker = shop.commands.start("run", "shop:app")
    worker.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=2)
    producer = Producer(shop.client)
    for number in range(6):
        producer.produce(shop.source, b"order %d" % number, b"key %d" % number)
    assert producer.flush(DEADLINE_S) == 0
    shop.wait_for(shop.dead_letters, 6)
    (shop.commands.directory / "mended").touch()
    assert shop.redrive()["redriven"] == 6
    worker.wait_for("charged order", times=6)
    ended = worker.stop()
    assert ended.code == 0
    assert len(shop.read(shop.dead_letters)) == 6
    listed = shop.commands.run("dlq", "list", "--json").json["topics"][shop.dead_letters]
    assert (listed["open"], listed["resolved"]) == (0, 6)
