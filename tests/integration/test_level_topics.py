"""The topics of retry levels at the start: made, widened, or missed by name before any call."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.applications import SHOP
from tests.commands import Commands, Ended
from tests.conftest import MakeTopic
from tests.integration.access import Access
from tests.integration.test_start_permissions import USER, Guarded
from tests.integration.test_start_topics import DAY_MS, Cluster
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

LEVELS = ("500ms", "2m", "10d")


@frozen
class Laddered:
    """A worker with three levels on a topic of three partitions."""

    commands: Commands
    cluster: Cluster
    source: str
    group: str

    def name(self, delay: str) -> str:
        return f"{self.group}.{self.source}.retry.{delay}"

    @property
    def copies(self) -> list[str]:
        return [*map(self.name, LEVELS), f"{self.group}.{self.source}.dlq"]

    def configure(self, *, create: bool = True, **retry: Any) -> None:
        config = self.cluster.worker(self.source, self.group, topics={"create": create})
        config["workers"]["charge"]["retry"] = {"levels": list(LEVELS), **retry}
        self.commands.configure(config)

    def run_until_reading(self) -> Ended:
        """Run the worker until the group has dealt out the source and all levels."""
        running = self.commands.start("run", "shop:app")
        running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=12)
        ended = running.stop()
        assert ended.code == 0
        return ended


@pytest.fixture
def laddered(
    kafka: RealKafka, commands: Commands, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> Laddered:
    commands.application(SHOP)
    settings = {"cleanup.policy": "compact", "retention.ms": "1000", "max.message.bytes": "50000"}
    cluster = Cluster(kafka.bootstrap, AdminClient({"bootstrap.servers": kafka.bootstrap}))
    laddered = Laddered(commands, cluster, make_topic("orders", 3, settings), unique_name("shop"))
    laddered.configure()
    return laddered


def test_the_start_makes_a_topic_for_each_level(laddered: Laddered) -> None:
    """They keep their records for 14 days, or twice the delay where that is longer."""
    laddered.run_until_reading()
    cluster = laddered.cluster
    source = cluster.settings(laddered.source)
    for delay, days in zip(LEVELS, (14, 14, 20), strict=True):
        settings = cluster.settings(laddered.name(delay))
        assert cluster.partitions(laddered.name(delay)) == 3
        assert settings["cleanup.policy"] == "delete"
        assert settings["retention.ms"] == str(days * DAY_MS)
        assert settings["max.message.bytes"] == str(50_000 + 64 * 1024)
        assert settings["min.insync.replicas"] == source["min.insync.replicas"]


def test_a_level_narrower_than_its_source_is_widened(laddered: Laddered) -> None:
    narrow = laddered.name("2m")
    by_hand(laddered, narrow, partitions=1)
    check = laddered.commands.run("check", "shop:app", "--connect")
    assert check.code == 0
    assert re.search(rf"\b{re.escape(narrow)} .*\b1 partitions", check.out)
    assert laddered.cluster.partitions(narrow) == 1
    laddered.run_until_reading()
    assert laddered.cluster.partitions(narrow) == 3


def test_a_level_that_was_taken_out_is_widened_while_it_holds_copies(laddered: Laddered) -> None:
    drained, holding = laddered.name("3s"), laddered.name("4s")
    for name in (drained, holding):
        by_hand(laddered, name, partitions=1)
    producer = Producer({"bootstrap.servers": laddered.cluster.bootstrap})
    producer.produce(holding, b"copy")
    assert producer.flush(30) == 0
    running = laddered.commands.start("run", "shop:app")
    running.wait_for("charged copy")
    running.stop()
    assert laddered.cluster.partitions(holding) == 3
    assert laddered.cluster.partitions(drained) == 1


def test_a_level_that_may_not_be_widened_ends_the_start_with_a_command_that_does_it(
    laddered: Laddered,
) -> None:
    for name in laddered.copies:
        by_hand(laddered, name, partitions=1 if name == laddered.name("2m") else 3)
    laddered.configure(create=False)
    ended = laddered.commands.run("run", "shop:app")
    assert (ended.code, ended.out) == (2, "")
    narrow = re.escape(laddered.name("2m"))
    assert re.search(rf"{narrow} .*\b1 partitions .*{laddered.source} 3\b", ended.err)
    assert "topics.create" in ended.err
    assert f"--alter --topic {laddered.name('2m')} --partitions 3" in ended.err


def by_hand(laddered: Laddered, name: str, partitions: int) -> None:
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1)
    topics.make(laddered.cluster.admin, topic)


@pytest.mark.parametrize("command", [["run"], ["check", "--connect"]], ids=["run", "check"])
def test_all_topics_that_are_missing_and_may_not_be_made_are_named_at_once(
    laddered: Laddered, command: list[str]
) -> None:
    laddered.configure(create=False)
    ended = laddered.commands.run(*command, "shop:app")
    assert (ended.code, ended.out) == (2, "")
    assert "topics.create" in ended.err
    commands = [line for line in ended.err.splitlines() if "kafka-topics.sh" in line]
    assert len(commands) == 4
    for name, line in zip(laddered.copies, commands, strict=True):
        assert f"--create --topic {name} --partitions 3" in line
        assert laddered.cluster.partitions(name) is None


# ---- permissions


@pytest.fixture
def guarded(
    kafka: RealKafka, commands: Commands, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> Guarded:
    """A worker with one level, that may read its source and write its dead letters."""
    access = Access(AdminClient({"bootstrap.servers": kafka.bootstrap}), USER)
    guarded = Guarded(kafka, commands, access, make_topic("orders", 2), unique_name("shop"))
    guarded.configure(retry={"levels": ["2m"]})
    access.grant("topic", guarded.topic, "READ", "DESCRIBE")
    access.grant("group", guarded.group, "READ", "DESCRIBE")
    access.grant("topic", guarded.dlq, "CREATE", "WRITE", "DESCRIBE")
    return guarded


def test_each_permission_that_a_level_needs_is_named_when_it_is_missing(guarded: Guarded) -> None:
    access, level = guarded.access, f"{guarded.group}.{guarded.topic}.retry.2m"
    ended = guarded.run("run")
    assert (ended.code, ended.out) == (2, "")
    assert f"{level}, {guarded.dlq} " in ended.err
    assert " CREATE" in ended.err
    assert f"--create --topic {level} --partitions 2" in ended.err

    access.grant("topic", level, "CREATE", "DESCRIBE")
    for missing in ("WRITE", "READ"):
        ended = guarded.run("run")
        assert (ended.code, ended.out) == (2, "")
        assert f"{missing} on topic {level}: " in ended.err
        access.grant("topic", level, missing)
    running = guarded.start("run")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=4)
    assert running.stop().code == 0


def test_a_level_that_may_not_be_altered_ends_the_start_with_a_command_that_widens_it(
    guarded: Guarded,
) -> None:
    level = f"{guarded.group}.{guarded.topic}.retry.2m"
    guarded.access.grant("topic", level, "CREATE", "DESCRIBE", "WRITE", "READ")
    running = guarded.start("run")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=4)
    assert running.stop().code == 0
    topics.widen(guarded.access.admin, guarded.topic, 3)
    ended = guarded.run("run")
    assert (ended.code, ended.out) == (2, "")
    assert re.search(rf"{re.escape(level)} .*\b2 partitions .*{guarded.topic} 3\b", ended.err)
    assert " ALTER " in ended.err
    assert f"--alter --topic {level} --partitions 3" in ended.err
    guarded.access.grant("topic", level, "ALTER")
    running = guarded.start("run")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=6)
    assert running.stop().code == 0
