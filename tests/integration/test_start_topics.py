"""Topics that are missing at the start, and the dead-letter topic that the start makes."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests import topics
from tests.applications import SHOP
from tests.commands import Commands
from tests.conftest import MakeTopic
from tests.integration.members import produce
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

DAY_MS = 24 * 60 * 60 * 1000


@frozen
class Cluster:
    bootstrap: str
    admin: AdminClient

    def partitions(self, topic: str) -> int | None:
        """None where there is no such topic."""
        topics = self.admin.list_topics(timeout=30).topics
        return len(topics[topic].partitions) if topic in topics else None

    def settings(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = self.admin.describe_configs([resource])[resource].result(30)
        return {name: entry.value for name, entry in entries.items()}

    def worker(self, topic: str, group: str, **more: Any) -> dict[str, Any]:
        return {
            "kafka": {"bootstrap.servers": self.bootstrap},
            "workers": {"charge": {"topics": [topic], "group": group}},
            **more,
        }


@pytest.fixture
def cluster(kafka: RealKafka) -> Cluster:
    return Cluster(kafka.bootstrap, AdminClient({"bootstrap.servers": kafka.bootstrap}))


@pytest.fixture
def group(unique_name: Callable[[str], str]) -> str:
    return unique_name("shop")


@pytest.mark.parametrize("command", [["run"], ["check", "--connect"]], ids=["run", "check"])
def test_a_missing_topic_ends_the_start_with_2_its_name_and_its_line(
    commands: Commands, cluster: Cluster, group: str, command: list[str]
) -> None:
    commands.application(SHOP)
    commands.configure(cluster.worker("no-such-topic", group))
    ended = commands.run(*command, "shop:app")
    assert (ended.code, ended.out) == (2, "")
    assert "workers.yaml:7: workers.charge:" in ended.err
    assert " topic no-such-topic: " in ended.err


def test_the_missing_topics_of_all_workers_are_named_at_once(
    commands: Commands, cluster: Cluster, group: str
) -> None:
    commands.application(SHOP)
    workers = {
        name: {"handler": "charge", "topics": [f"no-{name}", f"nor-{name}"], "group": group}
        for name in ("one", "two")
    }
    commands.configure({"kafka": {"bootstrap.servers": cluster.bootstrap}, "workers": workers})
    ended = commands.run("run", "shop:app")
    assert (ended.code, ended.out) == (2, "")
    assert "workers.one: " in ended.err
    assert " no-one, nor-one" in ended.err
    assert " no-two, nor-two" in ended.err


def test_a_missing_dead_letter_topic_that_may_not_be_made_ends_it_with_a_command_that_makes_it(
    commands: Commands, cluster: Cluster, group: str, make_topic: MakeTopic
) -> None:
    topic = make_topic("orders", 3)
    produce(cluster.bootstrap, topic, 3, 3)
    commands.application(SHOP)
    commands.configure(cluster.worker(topic, group, topics={"create": False}))
    ended = commands.run("run", "shop:app")
    assert ended.code == 2
    assert f" {group}.{topic}.dlq " in ended.err
    assert "topics.create" in ended.err
    assert "charged" not in ended.out
    assert committed_offsets({"bootstrap.servers": cluster.bootstrap}, group, topic) == {}

    (line,) = (each for each in ended.err.splitlines() if "kafka-topics.sh" in each)
    carry_out(line, cluster)
    assert cluster.partitions(f"{group}.{topic}.dlq") == 3
    running = commands.start("run", "shop:app")
    running.wait_for("charged", times=3)
    assert running.stop().code == 0


def carry_out(line: str, cluster: Cluster) -> None:
    """Do what Kafka's own script would do."""
    parser = ArgumentParser(prog="kafka-topics.sh", exit_on_error=False)
    parser.add_argument("--create", action="store_true", required=True)
    for name in ("--bootstrap-server", "--topic"):
        parser.add_argument(name, required=True)
    for name in ("--partitions", "--replication-factor"):
        parser.add_argument(name, required=True, type=int)
    parser.add_argument("--config", action="append", default=[])
    script, *arguments = shlex.split(line)
    wanted = parser.parse_args(arguments)
    assert (script, wanted.bootstrap_server) == (parser.prog, cluster.bootstrap)
    config = dict(each.split("=", 1) for each in wanted.config)
    topic = NewTopic(wanted.topic, wanted.partitions, wanted.replication_factor, config=config)
    topics.make(cluster.admin, topic)


def test_the_start_makes_the_dead_letter_topic_as_wide_as_its_source(
    commands: Commands, cluster: Cluster, group: str, make_topic: MakeTopic
) -> None:
    source = {"cleanup.policy": "compact", "retention.ms": "1000", "max.message.bytes": "50000"}
    topic = make_topic("orders", 3, source)
    copies = f"{group}.{topic}.dlq"
    commands.application(SHOP)
    commands.configure(cluster.worker(topic, group))
    running = commands.start("run", "shop:app")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=3)
    settings = cluster.settings(copies)
    assert cluster.partitions(copies) == 3
    assert settings["cleanup.policy"] == "delete"
    assert settings["retention.ms"] == str(14 * DAY_MS)
    assert settings["max.message.bytes"] == str(50_000 + 64 * 1024)
    assert settings["min.insync.replicas"] == cluster.settings(topic)["min.insync.replicas"]
    assert running.stop().code == 0


def test_a_check_asks_whether_the_dead_letter_topic_could_be_made_but_does_not_make_it(
    commands: Commands, cluster: Cluster, group: str, make_topic: MakeTopic
) -> None:
    topic = make_topic("orders", 3)
    commands.application(SHOP)
    commands.configure(cluster.worker(topic, group))
    ended = commands.run("check", "shop:app", "--connect")
    assert ended.code == 0
    assert re.search(rf"\b{topic} .*\b{group}\.{topic}\.dlq\b", ended.out)
    assert cluster.partitions(f"{group}.{topic}.dlq") is None


def test_the_largest_limit_for_records_is_the_largest_for_their_copies_too(
    commands: Commands, cluster: Cluster, group: str, make_topic: MakeTopic
) -> None:
    largest = str(2**31 - 1)
    topic = make_topic("orders", 1, {"max.message.bytes": largest})
    commands.application(SHOP)
    commands.configure(cluster.worker(topic, group))
    running = commands.start("run", "shop:app")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=1)
    assert running.stop().code == 0
    assert cluster.settings(f"{group}.{topic}.dlq")["max.message.bytes"] == largest
