"""``topics plan`` on a real Kafka: what it prints is what a worker makes, and enough for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic

from tests import topics
from tests.applications import SHOP
from tests.commands import Commands, Ended, produce
from tests.conftest import MakeTopic
from tests.integration.access import allow_planned
from tests.plans import Acl, Printed, TopicSettings, from_shell
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

USER = "alice"
SOURCE = {"retention.ms": "3600000", "max.message.bytes": "50000", "min.insync.replicas": "1"}


@frozen
class Shop:
    """A worker with two levels on a topic of its own; the plan is asked for by an administrator."""

    kafka: RealKafka
    commands: Commands
    admin: AdminClient
    topic: str
    group: str

    def configure(self, client: dict[str, Any] | None = None, *, create: bool = True) -> None:
        retry = {"levels": ["100ms", "20d"], "on_failure": "overtake"}
        worker = {"topics": [self.topic], "group": self.group, "retry": retry}
        kafka = client or {"bootstrap.servers": self.kafka.bootstrap}
        ladder = {"create": create}
        trace = {"sample": "100%", "topic": f"{self.group}.trace"}
        audit = {"enabled": True, "directory": "audit", "topic": f"{self.group}.audit"}
        self.commands.application(SHOP)
        self.commands.configure(
            {
                "kafka": kafka,
                "workers": {"charge": worker},
                "topics": ladder,
                "trace": trace,
                "audit": audit,
            }
        )

    def plan(self, *options: str) -> Ended:
        address = f"kafka.bootstrap.servers={self.kafka.bootstrap}"
        plain = ("--set", address, "--set", "kafka.security.protocol=PLAINTEXT")
        ended = self.commands.run("topics", "plan", *plain, *options, env=self.secret)
        assert ended.code == 0, ended.err
        return ended

    def run_with_a_dead_letter(self) -> None:
        """Let a worker write a dead letter and put that back."""
        produce(self.kafka.bootstrap, self.topic, b"poison")
        running = self.commands.start("run", "shop:app", env=self.secret)
        running.wait_for_event(LogEvent.CALL_FAILED)
        ended = running.stop()
        assert ended.code == 0
        assert ended.summary() == {"dead_lettered": 1}

    @property
    def secret(self) -> dict[str, str]:
        return {"PASSWORD": self.kafka.passwords[USER]}

    def topics(self) -> dict[str, TopicSettings]:
        """Return the topics of the group, with those settings that they were made with."""
        there = self.admin.list_topics(timeout=30).topics
        return {
            name: TopicSettings(
                len(each.partitions), len(each.partitions[0].replicas), self.settings(name)
            )
            for name, each in there.items()
            if name.startswith(f"{self.group}.")
        }

    def settings(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = self.admin.describe_configs([resource])[resource].result(30)
        return {
            name: str(entry.value)
            for name, entry in entries.items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }

    def make(self, printed: Printed) -> None:
        new = [
            NewTopic(name, each.partitions, each.replication, config=each.config)
            for name, each in printed.topics.items()
        ]
        topics.make(self.admin, *new)


@pytest.fixture
def shop(
    kafka: RealKafka, commands: Commands, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> Shop:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    shop = Shop(kafka, commands, admin, make_topic("orders", 3, SOURCE), unique_name("shop"))
    shop.configure()
    return shop


def test_the_plan_is_what_a_worker_and_a_redrive_make(shop: Shop) -> None:
    planned = from_shell(shop.plan().out)
    assert shop.topics() == {}, "nothing is made"
    shop.run_with_a_dead_letter()
    ended = shop.commands.run("dlq", "redrive")
    assert ended.code == 0, ended.err
    assert shop.topics() == planned.topics
    assert len(planned.topics) == 7
    again = shop.plan()
    assert from_shell(again.out) == planned
    assert "--alter" not in again.out
    there = re.findall(r"^#.*; .*\b(\d+) partitions", again.out, re.MULTILINE)
    assert Counter(there) == {"3": 4, "4": 2}


def test_a_start_that_lacks_topics_names_the_plan_and_is_content_with_what_that_prints(
    shop: Shop,
) -> None:
    shop.configure(create=False)
    ended = shop.commands.run("run", "shop:app")
    assert ended.code == 2
    assert "topics.create" in ended.err
    assert " topics plan" in ended.err
    shop.make(from_shell(shop.plan().out))
    shop.run_with_a_dead_letter()
    assert shop.commands.run("dlq", "redrive").code == 0


def test_the_permissions_are_enough_for_a_worker_and_its_redrives(shop: Shop) -> None:
    client = {**shop.kafka.sasl_settings(USER), "sasl.password": "${PASSWORD}"}
    shop.configure(client)
    ended = shop.commands.run("run", "shop:app", env=shop.secret)
    assert ended.code == 2
    assert "not authorised" in ended.err
    planned = from_shell(shop.plan("--principal", f"User:{USER}").out)
    allow_planned(shop.admin, planned.acls)
    shop.run_with_a_dead_letter()
    assert set(shop.topics()) == set(planned.topics) - {
        *(f"{shop.group}.{shop.topic}.retry.now", f"{shop.group}.dlq.state")
    }
    for more in ([], ["--transactional", "--restart"]):
        ended = shop.commands.run("dlq", "redrive", "--json", *more, env=shop.secret)
        assert ended.code == 0, ended.err
        assert ended.json["redrives"][0]["redriven"] == 1
    assert shop.topics() == planned.topics, "settings of the source may be seen"
    topics.widen(shop.admin, shop.topic, 4)
    running = shop.commands.start("run", "shop:app", env=shop.secret)
    running.wait_for_event(
        LogEvent.PARTITIONS_ASSIGNED, partitions=16
    )  # 4 each of the source, the levels, the entry
    assert running.stop().code == 0


def test_retry_topics_that_are_narrower_than_their_source_are_widened(shop: Shop) -> None:
    prefix = f"{shop.group}.{shop.topic}"
    narrow = [f"{prefix}.retry.100ms", f"{prefix}.retry.now", f"{prefix}.dlq"]
    topics.make(shop.admin, *(NewTopic(each, 1, 1) for each in narrow))
    out = shop.plan().out
    level, entry, _ = narrow
    assert f"--alter --topic {level} --partitions 3\n" in out
    assert f"--alter --topic {entry} --partitions 3\n" in out
    assert out.count("--alter") == 2, "dead letters are not read: they need not be as wide"
    running = shop.commands.start("run", "shop:app")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=12)
    assert running.stop().code == 0
    assert "--alter" not in shop.plan().out


def test_a_retry_topic_that_is_too_narrow_and_may_not_be_widened_ends_the_start_with_2(
    shop: Shop,
) -> None:
    shop.configure(create=False)
    printed = from_shell(shop.plan().out)
    entry = f"{shop.group}.{shop.topic}.retry.now"
    shop.make(Printed({**printed.topics, entry: TopicSettings(1, 1, {})}, set()))
    ended = shop.commands.run("run", "shop:app")
    assert ended.code == 2
    assert re.search(rf"{re.escape(entry)} .*\b1 partitions .*{shop.topic} 3\b", ended.err)
    assert "topics.create" in ended.err
    assert f"--alter --topic {entry} --partitions 3" in ended.err
    assert " topics plan" in ended.err


def test_a_source_topic_that_is_missing_ends_it_with_2(shop: Shop) -> None:
    ended = shop.commands.run("topics", "plan", "--set", "workers.charge.topics=[no-such-topic]")
    assert (ended.code, ended.out) == (2, "")
    assert " topic no-such-topic: " in ended.err
    assert "--partitions" in ended.err


def test_a_source_topic_that_may_not_be_seen_ends_it_with_2(shop: Shop) -> None:
    shop.configure({**shop.kafka.sasl_settings(USER), "sasl.password": "${PASSWORD}"})
    ended = shop.commands.run("topics", "plan", env=shop.secret)
    assert (ended.code, ended.out) == (2, "")
    assert f"DESCRIBE on topics {shop.topic}" in ended.err
    assert "--partitions and --replication-factor" in ended.err


def test_settings_of_a_source_that_may_not_be_seen_are_assumed_and_that_is_reported(
    shop: Shop,
) -> None:
    shop.configure({**shop.kafka.sasl_settings(USER), "sasl.password": "${PASSWORD}"})
    allow_planned(shop.admin, {Acl("topic", shop.topic, "Describe", False, f"User:{USER}")})
    ended = shop.commands.run("topics", "plan", env=shop.secret)
    assert ended.code == 0, ended.err
    dead_letters = from_shell(ended.out).topics[f"{shop.group}.{shop.topic}.dlq"]
    assert dead_letters.partitions == 3
    assert dead_letters.config["max.message.bytes"] == str(1_048_588 + 64 * 1024)
    assert "min.insync.replicas" not in dead_letters.config
    notes = " ".join(line.removeprefix("# ") for line in ended.out.splitlines())
    assert f" {shop.topic} (DESCRIBE_CONFIGS)" in notes
