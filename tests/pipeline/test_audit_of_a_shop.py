"""From a worker on a real Kafka to the report: what was planted is what is found."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.commands import DEADLINE_S, Commands, Ended, produce
from tests.conftest import MakeTopic
from tests.kernel import client_log
from tests.pipeline import here
from tests.pipeline.conftest import QUICK
from tests.waiting import wait_until
from window_consumer import TracedProducer
from window_consumer.audit.commands.kafka_state import standing
from window_consumer.audit.consumer import AuditRules
from window_consumer.audit.process_audit import Audit, AuditSettings
from window_consumer.audit.producer import ProducerAudit
from window_consumer.audit.states import Finding
from window_consumer.testing.real_kafka import RealKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE_MS = 60_000
RECORDS = 20
"""In each minute."""

REPORT_S = 10 * DEADLINE_S
"""Spark starts by itself, which takes a while on a busy machine."""

SHOP = """
from window_consumer import App, Record, Skip

app = App("shop")


@app.handler("{orders}", group="{group}", retry={{"attempts": 1, "levels": ["100ms"]}})
def charge(order: Record) -> None:
    text = order.text()
    if text == "dead" or (text == "late" and order.attempt == 1):
        raise ValueError(text)
    if text == "other":
        raise Skip


@app.handler("{side}", group="{group}-side")
def look(order: Record) -> None:
    pass
"""


WAITING = """
from window_consumer import App, Record

app = App("shop")


@app.handler("{orders}", group="{group}", retry={retry})
def charge(order: Record) -> None:
    if order.text() == "dead":
        raise ValueError("dead")
"""


FORGIVING = """
from window_consumer import App, Record

app = App("shop")


@app.handler("{orders}", group="{group}")
def charge(order: Record) -> None:
    pass
"""


@define
class Shop:
    """A topic of orders, who writes to it and counts, and a worker."""

    bootstrap: str
    commands: Commands
    orders: str
    side: str
    group: str
    first_ms: int
    producer: TracedProducer = field(init=False)
    watcher: ProducerAudit = field(init=False)
    counts: str = field(init=False)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let it write, and count; the next worker ships the counts, as it finds them."""
        rules = AuditRules(ids=True)
        directory = self.commands.directory / "audit"
        with Audit(AuditSettings(directory=directory, app="web", rules=rules)) as audit:
            self.watcher = audit.producer("web-orders")
            given = {"bootstrap.servers": self.bootstrap, "log_level": 0}
            with TracedProducer(given, trace=None, watchers=[self.watcher]) as self.producer:
                yield

    def configure(self, counts: str) -> None:
        self.commands.application(SHOP.format(orders=self.orders, group=self.group, side=self.side))
        self.counts = counts
        self.configure_workers({"charge": {"commit_interval": "100ms"}, "look": {}})
        kafka = {"bootstrap.servers": self.bootstrap}
        pipeline = {
            "kafka": kafka,
            "directory": "lake",
            "audit": {"topic": counts, "grace": "0s"},
            "spark": {"master": "local[2]", "properties": QUICK},
        }
        self.commands.configure(pipeline, "pipeline.yaml")

    def configure_workers(self, workers: dict[str, Any]) -> None:
        audit = {"enabled": True, "directory": "audit", "ids": True, "topic": self.counts}
        kafka = {"bootstrap.servers": self.bootstrap}
        self.commands.configure({"kafka": kafka, "workers": workers, "audit": audit})

    def minute_ms(self, minute: int) -> int:
        return self.first_ms + minute * MINUTE_MS

    def sell(self, minute: int, *texts: str, partition: int = 0) -> None:
        """Write what orders of a minute are to be, and twenty good ones for each partition."""
        for each in (0, 1):
            for text in ["good"] * RECORDS + list(texts if each == partition else ()):
                self.producer.produce(
                    self.orders, text, partition=each, timestamp=self.minute_ms(minute)
                )
        assert self.producer.flush(DEADLINE_S) == 0

    def lose(self, minute: int) -> None:
        """Count a record that no broker has: one was acked, and its log cut by an election."""
        token = self.watcher.sent(self.orders, None, 4, self.minute_ms(minute), b"lost-%d" % minute)
        self.watcher.acked(token, 1, -1)

    def repeat(self, minute: int) -> None:
        """Write a record again that is there, as a producer does that has not heard the ack."""
        plain = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for count_it in (True, False):
            about: Any = {"timestamp": self.minute_ms(minute), "partition": 1}
            record_id = f"twice-{minute}".encode()
            token = self.watcher.sent(self.orders, None, 4, about["timestamp"], record_id)
            plain.produce(self.orders, b"good", headers=[("wc-id", record_id)], **about)
            assert plain.flush(DEADLINE_S) == 0
            if count_it:
                self.watcher.acked(token, 1, -1)
            else:
                self.watcher.failed(token, BufferError())

    def wait_for(self, group: str, topic: str) -> None:
        """Wait until a group has committed all there is."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        places = [TopicPartition(topic, each) for each in (0, 1)]

        def is_done() -> bool:
            ends = [consumer.get_watermark_offsets(each)[1] for each in places]
            # A group that is being made has no coordinator yet.
            with suppress(KafkaException):
                committed = consumer.committed(places, timeout=DEADLINE_S)
                return [max(0, each.offset) for each in committed] == ends
            return False

        wait_until(is_done, DEADLINE_S, f"{group} has committed all of {topic}")
        consumer.close()

    def work(self) -> None:
        """Let the worker do all there is, and end it; the counts are in their topic then."""
        self._work_once()
        while any((self.commands.directory / "audit").iterdir()):
            # What does not get away in its last seconds is left for the next one.
            self._work_once()

    def _work_once(self) -> None:
        worker = self.commands.start("run", "shop:app")
        for name in ("charge", "look"):
            worker.wait_for(f"{name}: reads ")
        retries = f"{self.group}.{self.orders}.retry.100ms"
        for group, topic in (
            (self.group, self.orders),
            (f"{self.group}-side", self.side),
            (self.group, retries),
        ):
            self.wait_for(group, topic)
        assert worker.stop().code == 0

    def work_beside_what_waits(self) -> None:
        """Let the worker do all there is but one record, which no end waits for."""
        worker = self.commands.start("run", "shop:app")
        worker.wait_for("charge: reads ")
        client = {"bootstrap.servers": self.bootstrap}

        def all_but_one() -> bool:
            held = standing([(self.orders, self.group)], client, client_log()).held
            return [stop - first for first, stop, _ in (row[-3:] for row in held)] == [1]

        wait_until(all_but_one, DEADLINE_S, "one record is not finished")
        assert worker.stop().code == 0

    def work_off_what_waited(self) -> None:
        """Let a worker do all there is, the record that has waited as well."""
        self.commands.application(FORGIVING.format(orders=self.orders, group=self.group))
        worker = self.commands.start("run", "shop:app")
        worker.wait_for("charge: reads ")
        self.wait_for(self.group, self.orders)
        assert worker.stop().code == 0

    def skip_by_hand(self, partition: int, count: int) -> None:
        """Move the group's offset on."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        place = TopicPartition(self.orders, partition)
        [done] = consumer.committed([place], timeout=DEADLINE_S)
        consumer.close()
        moved = TopicPartition(self.orders, partition, done.offset + count)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        request = ConsumerGroupTopicPartitions(self.group, [moved])
        [answer] = admin.alter_consumer_group_offsets([request]).values()
        answer.result(DEADLINE_S)

    def report(self, *more: str) -> Ended:
        return self.commands.start("audit", "report", *more).wait(REPORT_S)


@pytest.fixture
def shop(
    kafka: RealKafka, commands: Commands, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> Shop:
    first_ms = (time.time_ns() // 1_000_000 - 7_200_000) // MINUTE_MS * MINUTE_MS
    topics = {name: make_topic(name, 2) for name in ("orders", "side")}
    shop = Shop(kafka.bootstrap, commands, group=unique_name("shop"), first_ms=first_ms, **topics)
    shop.configure(make_topic("counts"))
    return shop


@pytest.mark.slow
def test_what_was_planted_is_what_is_found(shop: Shop, spark: SparkSession) -> None:
    with shop.opened():
        for minute in range(8):
            more = ("late", "dead", "other") if minute == 2 else ()
            shop.sell(minute, *more)
            if minute in {3, 6}:
                shop.lose(minute)
            if minute in {5, 6}:
                shop.repeat(minute)
    produce(shop.bootstrap, shop.side, b"one", b"two")
    shop.work()
    with shop.opened():
        shop.sell(8)
        shop.skip_by_hand(0, 3)
        shop.sell(9)
    shop.work()
    ended = shop.report("--json")
    assert ended.code == 3, ended.said
    said = [json.loads(line) for line in ended.out.splitlines()]
    rows = [each for each in said if each["what"] == "bucket"]
    odd = {
        (row["bucket_ms"] - shop.first_ms) // MINUTE_MS: (
            row["finding"],
            row["lost"],
            row["duplicated"],
        )
        for row in rows
        if row["topic"] == shop.orders and row["finding"] != Finding.BALANCED
    }
    assert odd == {
        3: (Finding.LOST, 1, 0),
        5: (Finding.DUPLICATED, 0, 1),
        6: (Finding.EXCHANGED, 1, 1),
        8: (Finding.LOST, 3, 0),
    }
    others = {row["topic"]: row["finding"] for row in rows if row["topic"] != shop.orders}
    ladder = f"{shop.group}.{shop.orders}"
    assert others == {
        shop.side: Finding.UNAUDITED,
        f"{ladder}.retry.100ms": Finding.BALANCED,
        f"{ladder}.dlq": Finding.NOT_CONSUMED,
    }
    [third] = [row for row in rows if row["topic"] == shop.orders and row["retried"]]
    terms = ("produced", "finished", "retried", "filtered", "lost")
    assert [third[term] for term in terms] == [2 * RECORDS + 3, 2 * RECORDS, 2, 1, 0]
    hosts = {row["host"] for row in said if row["what"] == "latency" and row["group"] == shop.group}
    assert hosts == {None, platform.node()}
    start_s = shop.minute_ms(3) // 1000
    bucket = datetime.fromtimestamp(start_s, UTC).isoformat()
    config = str(shop.commands.directory / "pipeline.yaml")
    about = ["-c", config, "--explain", bucket, "--topic", shop.orders, "--json"]
    ended = here.run(spark, "audit", "report", "--no-refresh", *about)
    assert ended.code == 3, ended.said
    [explained] = [json.loads(line) for line in ended.out.splitlines()]
    assert (explained["partition"], explained["came"] - explained["left"]) == (1, 1)


def lines_of(ended: Ended) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ended.out.splitlines()]


def buckets(ended: Ended) -> list[str]:
    return [row["finding"] for row in lines_of(ended) if row["what"] == "bucket"]


@pytest.mark.slow
def test_what_is_held_or_not_in_the_table_yet_is_not_lost(shop: Shop, spark: SparkSession) -> None:
    """A record that waits lies in the window while all others pass: its offset is not committed.

    Whether it still waits, or has been finished since the table was read, it is not lost. A record
    that nobody holds is.
    """
    waiting = {"attempts": 1000, "backoff": "60s..60s"}
    shop.commands.application(WAITING.format(orders=shop.orders, group=shop.group, retry=waiting))
    shop.configure_workers({"charge": {"commit_interval": "100ms"}})
    config = str(shop.commands.directory / "pipeline.yaml")
    with shop.opened():
        for minute in range(3):
            shop.sell(minute, *(["dead"] if minute == 1 else ()))
        shop.lose(0)
    shop.work_beside_what_waits()
    expected = [Finding.LOST, Finding.IN_PROGRESS, Finding.BALANCED]
    ended = here.run(spark, "audit", "report", "-c", config, "--json")
    assert ended.code == 3, ended.said
    assert buckets(ended) == expected
    about = lines_of(ended)[-1]
    assert (about["reaches"], about["quarantined"], about["lost"]) == (None, 0, True)
    with shop.opened():
        shop.sell(3)
        shop.sell(4)
    for finish in (shop.work_beside_what_waits, shop.work_off_what_waited):
        finish()
        ended = here.run(spark, "audit", "report", "-c", config, "--json", "--no-refresh")
        assert "--no-refresh" in ended.err
        assert lines_of(ended)[-1]["reaches"] is not None
        assert buckets(ended) == expected, finish
