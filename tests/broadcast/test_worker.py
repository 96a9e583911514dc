"""Broadcast workers on real brokers: each process gets everything, and no group exists."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import kafka_of
from tests.integration.access import Access
from tests.waiting import wait_until
from window_consumer import App, Record, Running
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.testing.real_kafka import RealKafka

WAIT_S = 60.0


class Replica:
    """What a process with a cache looks like to Kafka."""

    def __init__(self, topic: str) -> None:
        self.app = App("prices")
        self.handled: list[tuple[int, int]] = []
        self.gate = Event()
        self.gate.set()
        self.app.handler(topic, name="fill")(self.fill)

    def fill(self, record: Record) -> None:
        self.gate.wait(WAIT_S)
        self.handled.append((record.partition, record.offset))

    def has_handled(self, count: int) -> bool:
        return len(self.handled) == count

    def start(self, file: Path, kafka: dict[str, Any], **worker: Any) -> Running:
        worker = {"delivery": "broadcast", "broadcast": {"from": "earliest"}, **worker}
        file.write_text(yaml.safe_dump({"kafka": kafka, "workers": {"fill": worker}}))
        return self.app.start(file, start_timeout=WAIT_S)


def is_ready(running: Running) -> bool:
    return all(worker.outline().is_ready for worker in running.workers)


def test_every_process_gets_every_record(embedded: EmbeddedBroker, tmp_path: Path) -> None:
    embedded.create_topic("prices", 3)
    embedded.fill("prices", [NewRecord(b"%d" % at, b"%d" % at) for at in range(300)])
    replicas = [Replica("prices") for _ in range(2)]
    with ExitStack() as stack:
        for number, each in enumerate(replicas):
            file = tmp_path / f"{number}.yaml"
            stack.enter_context(each.start(file, kafka_of(embedded)))
        for each in replicas:
            wait_until(partial(each.has_handled, 300), WAIT_S, "all are handled")
    assert len(set(replicas[0].handled)) == 300
    assert sorted(replicas[0].handled) == sorted(replicas[1].handled)


def test_a_worker_is_ready_once_it_has_handled_what_was_there(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("prices", 2)
    embedded.fill("prices", [NewRecord(b"1", b"1")])
    replica = Replica("prices")
    replica.gate.clear()
    with replica.start(tmp_path / "workers.yaml", kafka_of(embedded)) as running:
        loop = running.workers[0].loop
        wait_until(lambda: loop.ownership.in_group, WAIT_S, "it has its partitions")
        running.snapshots()  # the poll thread has taken another turn
        assert not is_ready(running)
        replica.gate.set()
        wait_until(lambda: is_ready(running), WAIT_S, "it is ready")
    assert len(replica.handled) == 1


def test_real_logs_with_holes_are_caught_up_with(
    kafka: RealKafka, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Partition 0 ends with an aborted transaction, 1 is empty, 2 ends with a transaction."""
    topic = make_topic("prices", 3)
    client: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap}
    producer = Producer({**client, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for partition, ends in ((0, (True, False)), (2, (True,))):
        for commits in ends:
            producer.begin_transaction()
            producer.produce(topic, b"value", partition=partition)
            if commits:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
    replica = Replica(topic)
    settings = {**client, "fetch.wait.max.ms": 10}
    with replica.start(tmp_path / "workers.yaml", settings) as running:
        wait_until(lambda: is_ready(running), WAIT_S, "it is ready")
        assert sorted(replica.handled) == [(0, 0), (2, 0)]
    groups = AdminClient(client).list_consumer_groups().result(WAIT_S).valid
    assert not [each for each in groups if "fill" in each.group_id]


@pytest.mark.parametrize("begin", ["latest", "1ms"])
def test_a_worker_that_skips_what_was_there_is_ready_at_once(
    embedded: EmbeddedBroker, tmp_path: Path, begin: str
) -> None:
    embedded.create_topic("prices", 1)
    embedded.fill("prices", [NewRecord(b"old", b"1")])
    replica = Replica("prices")
    broadcast = {"from": begin}
    with replica.start(tmp_path / "w.yaml", kafka_of(embedded), broadcast=broadcast) as running:
        wait_until(lambda: is_ready(running), WAIT_S, "it is ready")
        embedded.fill("prices", [NewRecord(b"new", b"1")])
        wait_until(lambda: replica.handled == [(0, 1)], WAIT_S, "only the new one is handled")


def test_added_partitions_and_a_recreated_topic_are_read_from_their_beginning(
    kafka: RealKafka, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic("prices", 1)
    client: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap}
    admin, producer = AdminClient(client), Producer(client)
    replica = Replica(topic)
    settings = {**client, "fetch.wait.max.ms": 10}
    with replica.start(tmp_path / "w.yaml", settings, broadcast={"from": "latest"}) as running:
        wait_until(lambda: is_ready(running), WAIT_S, "it is ready")
        topics.widen(admin, topic, 2)
        producer.produce(topic, b"value", partition=1)
        producer.flush(WAIT_S)
        wait_until(lambda: (1, 0) in replica.handled, WAIT_S, "the new partition is read")
        topics.make_anew(admin, NewTopic(topic, 2, 1))
        another = Producer(client)
        for partition in range(2):
            another.produce(topic, b"value", partition=partition)
        another.flush(WAIT_S)
        wait_until(lambda: replica.handled.count((1, 0)) == 2, WAIT_S, "the new topic is read")
        wait_until(lambda: (0, 0) in replica.handled, WAIT_S, "all of it")
        assert is_ready(running)


def test_a_worker_continues_after_its_broker_was_away(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("prices", 1)
    embedded.fill("prices", [NewRecord(b"1")])
    replica = Replica("prices")
    with replica.start(tmp_path / "workers.yaml", kafka_of(embedded)):
        wait_until(partial(replica.has_handled, 1), WAIT_S, "the first is handled")
        embedded.broker_down()
        embedded.broker_up()
        embedded.fill("prices", [NewRecord(b"2")])
        wait_until(partial(replica.has_handled, 2), WAIT_S, "the second is handled")
    assert replica.handled == [(0, 0), (0, 1)]


def test_child_processes_get_everything(embedded: EmbeddedBroker, tmp_path: Path) -> None:
    embedded.create_topic("prices", 2)
    embedded.fill("prices", [NewRecord(b"%d" % at, b"%d" % at) for at in range(20)])
    file = tmp_path / "workers.yaml"
    broadcast = {"from": "earliest"}
    worker = {"delivery": "broadcast", "broadcast": broadcast, "pool": "processes"}
    workers = {"fill": {**worker, "concurrency": 2}}
    file.write_text(yaml.safe_dump({"kafka": kafka_of(embedded), "workers": workers}))
    with children_app.start(file, start_timeout=WAIT_S) as running:
        wait_until(lambda: is_ready(running), WAIT_S, "it is ready")
        assert running.counters["fill"].processed == 20


children_app = App("prices")


@children_app.handler("prices")
def fill(record: Record) -> None:
    """Do nothing."""


def test_reading_and_describing_the_topic_is_all_that_must_be_permitted(
    kafka: RealKafka,
    make_topic: Callable[..., str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = make_topic("prices", 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    Access(admin, "alice").grant("topic", topic, "READ", "DESCRIBE")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"value", partition=1)
    producer.flush(WAIT_S)
    replica = Replica(topic)
    secret = {"sasl.password": kafka.passwords["alice"], "fetch.wait.max.ms": 10}
    settings = {**kafka.sasl_settings("alice"), **secret}
    with replica.start(tmp_path / "workers.yaml", settings) as running:
        wait_until(lambda: is_ready(running), WAIT_S, "it is ready")
        time.sleep(2.0)  # the client asks for the group's coordinator in the background
        assert replica.handled == [(1, 0)]
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []
