"""``check --connect``: what the cluster says about a configuration."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests import topics
from tests.applications import SHOP
from tests.commands import Commands
from tests.conftest import MakeTopic
from tests.golden_texts import Golden
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka


@frozen
class Shop:
    """A worker of a group and a topic of its own."""

    commands: Commands
    bootstrap: str
    topic: str
    group: str

    def configure(self, **worker: Any) -> None:
        worker = {"topics": [self.topic], "group": self.group, **worker}
        client = {"bootstrap.servers": self.bootstrap}
        self.commands.configure({"kafka": client, "workers": {"charge": worker}})

    def findings(self) -> Any:
        ended = self.commands.run("check", "shop:app", "--connect", "--json")
        assert ended.code == 0, ended.err
        return ended.json["workers"]["charge"]["cluster"]


@pytest.fixture
def shop(
    kafka: RealKafka, commands: Commands, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> Shop:
    commands.application(SHOP)
    shop = Shop(commands, kafka.bootstrap, make_topic("orders", 2), unique_name("shop"))
    shop.configure()
    return shop


def test_topics_and_limits_are_reported(shop: Shop) -> None:
    found = shop.findings()
    assert found["topics"] == {shop.topic: 2}
    assert found["dead_letter_topics"] == {shop.topic: f"{shop.group}.{shop.topic}.dlq"}
    assert found["limits"]["offset.metadata.max.bytes"] == "4096"
    assert found["limits"]["group.consumer.session.timeout.ms"] == "6000"
    assert found["warnings"] == []


def test_how_long_a_takeover_takes_is_by_the_times_that_the_cluster_tells(
    shop: Shop, golden: Golden
) -> None:
    """... the group's own, which are the broker's until somebody sets others."""

    def bounds() -> Any:
        ended = shop.commands.run("check", "shop:app", "--connect", "--json")
        assert ended.code == 0, ended.err
        return ended.json["workers"]["charge"]

    found, revoke_timeout_s = bounds(), 10
    times = found["group_times"]
    assert (times["session_s"], times["heartbeat_s"]) == (6.0, 0.5)
    golden(times["session_from"])
    golden(times["heartbeat_from"])
    assert found["crash_takeover_s"] == pytest.approx(6 + 0.5 + revoke_timeout_s)
    admin = AdminClient({"bootstrap.servers": shop.bootstrap})
    longer = ConfigEntry(
        "consumer.session.timeout.ms", "9000", incremental_operation=AlterConfigOpType.SET
    )
    own = ConfigResource("group", shop.group, incremental_configs=[longer])
    admin.incremental_alter_configs([own])[own].result(60)
    found = bounds()
    assert found["crash_takeover_s"] == pytest.approx(9 + 0.5 + revoke_timeout_s)
    text = shop.commands.run("check", "shop:app", "--connect").out
    assert re.search(r" 19500ms: session 9s \(.*\bconsumer\.session\.timeout\.ms\)", text)


def test_more_consumers_than_partitions_are_warned_of(shop: Shop) -> None:
    running = [shop.commands.start("run", "shop:app") for _ in range(2)]
    for each in running:
        each.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=1)
    found = shop.findings()
    assert found["members"] == 2
    (warning,) = found["warnings"]
    assert re.search(r"\b2 members\b.*\b2 partitions\b", warning)
    ended = shop.commands.run("check", "shop:app", "--connect")
    assert f"warning: {warning}" in ended.out
    assert [each.stop().code for each in running] == [0, 0]
    assert shop.findings()["warnings"] == []


def test_slots_that_no_partition_can_use_are_warned_of(shop: Shop) -> None:
    shop.configure(ordering="partition", concurrency=3, retry={"on_failure": "overtake"})
    (warning,) = shop.findings()["warnings"]
    assert re.search(r"\b2 .*\b3 slots\b", warning)


def test_a_dead_letter_topic_that_is_narrower_is_warned_of(shop: Shop) -> None:
    name = f"{shop.group}.{shop.topic}.dlq"
    topic = NewTopic(name, num_partitions=1, replication_factor=1)
    topics.make(AdminClient({"bootstrap.servers": shop.bootstrap}), topic)
    (warning,) = shop.findings()["warnings"]
    assert re.search(rf"\b{name} .*\b1\b.*\b{shop.topic} .*\b2\b", warning)


def test_where_records_wait_for_their_key_is_reported(shop: Shop) -> None:
    shop.configure(ordering="key", retry={"on_failure": "park", "levels": ["1m"]})
    parked = f"{shop.group}.{shop.topic}.park"
    assert shop.findings()["park_topics"] == {shop.topic: parked}
    assert parked in shop.commands.run("check", "shop:app", "--connect").out


def test_what_the_delay_service_shares_is_checked_and_not_created(
    shop: Shop, unique_name: Callable[[str], str]
) -> None:
    entry = unique_name("delay")
    schedules = {"job": {"cron": "0 2 * * *", "to": shop.topic}}
    delay = {"to": [shop.topic], "topic": entry}
    client = {"bootstrap.servers": shop.bootstrap}
    worker = {"topics": [shop.topic], "group": shop.group}
    sections = {"workers": {"charge": worker}, "delay": delay, "schedules": schedules}
    shop.commands.configure({"kafka": client, **sections})
    ended = shop.commands.run("check", "shop:app", "--connect", "--json")
    assert ended.code == 0, ended.err
    shared = ended.json["workers"]["delay"]["cluster"]["state_topics"]
    assert set(shared) == {f"{entry}.cancel", f"{entry}.schedules"}
    there = AdminClient({**client}).list_topics(timeout=30).topics
    assert not [name for name in there if name.startswith(entry)]
