"""Passwords and permissions: what is missing is named at the start, and waited for later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.applications import SHOP
from tests.commands import Command, Commands, Ended
from tests.commands import produce as produce_values
from tests.conftest import MakeTopic
from tests.integration.access import Access
from tests.integration.members import log_ends, produce
from tests.waiting import wait_until
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

USER = "alice"


@frozen
class Guarded:
    """A worker that logs in as a user, who may do nothing unless the test grants it."""

    kafka: RealKafka
    commands: Commands
    access: Access
    topic: str
    group: str

    @property
    def dlq(self) -> str:
        return f"{self.group}.{self.topic}.dlq"

    @property
    def password(self) -> str:
        return self.kafka.passwords[USER]

    def configure(self, **worker: Any) -> None:
        self.commands.application(SHOP)
        client = {**self.kafka.sasl_settings(USER), "sasl.password": "${PASSWORD}"}
        worker = {"topics": [self.topic], "group": self.group, **worker}
        self.commands.configure({"kafka": client, "workers": {"charge": worker}})

    def start(self, *arguments: str, log_in_with: str = "") -> Command:
        secret = {"PASSWORD": log_in_with or self.password}
        return self.commands.start(*arguments, "shop:app", env=secret)

    def run(self, *arguments: str, log_in_with: str = "") -> Ended:
        ended = self.start(*arguments, log_in_with=log_in_with).wait()
        assert (log_in_with or self.password) not in ended.said
        return ended

    def produce(self, count: int) -> None:
        produce(self.kafka.bootstrap, self.topic, count, count)

    def all_committed(self) -> bool:
        client = {"bootstrap.servers": self.kafka.bootstrap}
        return committed_offsets(client, self.group, self.topic) == log_ends(
            self.kafka.bootstrap, self.topic
        )


@pytest.fixture
def guarded(
    kafka: RealKafka, commands: Commands, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> Guarded:
    access = Access(AdminClient({"bootstrap.servers": kafka.bootstrap}), USER)
    guarded = Guarded(kafka, commands, access, make_topic("orders"), unique_name("shop"))
    guarded.configure()
    return guarded


START = pytest.mark.parametrize("command", [["run"], ["check", "--connect"]], ids=["run", "check"])


@START
def test_a_wrong_password_ends_the_start_with_1_at_once(
    guarded: Guarded, command: list[str]
) -> None:
    ended = guarded.run(*command, "--start-timeout", "10m", log_in_with="swordfish")
    assert ended.code == 1
    assert f" {guarded.kafka.sasl_bootstrap} " in ended.err
    assert all(key in ended.err for key in ("sasl.mechanism", "sasl.username"))


@pytest.mark.slow
def test_a_password_that_is_refused_later_is_logged_and_goes_on_when_it_is_taken_again(
    tmp_path_factory: pytest.TempPathFactory, commands: Commands
) -> None:
    with RealKafka.start(tmp_path_factory.mktemp("passwords")) as kafka:
        access = Access(AdminClient({"bootstrap.servers": kafka.bootstrap}), USER)
        guarded = Guarded(kafka, commands, access, "orders", "shop")
        topic = NewTopic("orders", num_partitions=1, replication_factor=1)
        topics.make(access.admin, topic)
        allow_everything(guarded)
        guarded.configure()
        guarded.produce(10)
        running = guarded.start("run")
        running.wait_for("charged", times=10)
        replace_password(kafka, kafka.passwords[USER], "changed")
        running.wait_for("SASL authentication error")
        guarded.produce(10)
        replace_password(kafka, "changed", kafka.passwords[USER])
        running.wait_for("charged", times=20)
        ended = running.stop()
        assert ended.code == 0
        assert guarded.password not in ended.said
        assert guarded.all_committed()


def replace_password(kafka: RealKafka, old: str, new: str) -> None:
    """Let the broker know another password: it reads its users at its start."""
    properties = kafka._properties
    properties.write_text(properties.read_text().replace(f'"{old}"', f'"{new}"'))
    kafka.restart()


@START
def test_a_topic_that_may_not_be_described_is_named(guarded: Guarded, command: list[str]) -> None:
    ended = guarded.run(*command)
    assert ended.code == 2
    assert f"needs DESCRIBE and READ on topics {guarded.topic}" in ended.err


def test_each_permission_that_a_start_needs_is_named_when_it_is_missing(guarded: Guarded) -> None:
    access = guarded.access
    access.grant("topic", guarded.topic, "DESCRIBE")
    assert_missing(guarded.run("run"), f"needs READ on topic {guarded.topic}")
    access.grant("topic", guarded.topic, "READ")
    assert_missing(guarded.run("run"), f"needs READ on group {guarded.group}")
    access.grant("group", guarded.group, "DESCRIBE")
    assert_missing(guarded.run("run"), f"needs READ on group {guarded.group}")
    access.grant("group", guarded.group, "READ")
    ended = guarded.run("run")
    assert_missing(ended, f" {guarded.dlq} ")
    assert " CREATE" in ended.err
    assert f"--create --topic {guarded.dlq} --partitions 1" in ended.err
    access.grant("topic", guarded.dlq, "CREATE", "DESCRIBE")
    assert_missing(guarded.run("run"), f"needs WRITE on topic {guarded.dlq}")
    access.grant("topic", guarded.dlq, "WRITE")
    running = guarded.start("run")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=1)
    assert running.stop().code == 0


def assert_missing(ended: Ended, text: str) -> None:
    assert (ended.code, ended.out) == (2, "")
    assert text in ended.err


def test_a_worker_that_writes_no_dead_letters_needs_no_permission_for_them(
    guarded: Guarded,
) -> None:
    guarded.access.grant("topic", guarded.topic, "READ", "DESCRIBE")
    guarded.access.grant("group", guarded.group, "READ", "DESCRIBE")
    guarded.configure(retry={"when_spent": "stop"})
    running = guarded.start("run")
    running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=1)
    assert running.stop().code == 0


def allow_everything(guarded: Guarded) -> None:
    guarded.access.grant("topic", guarded.topic, "READ", "DESCRIBE")
    guarded.access.grant("group", guarded.group, "READ", "DESCRIBE")
    guarded.access.grant("topic", guarded.dlq, "CREATE", "WRITE", "DESCRIBE")


PROTOCOLS = pytest.mark.parametrize("protocol", ["consumer", "classic"])


@PROTOCOLS
def test_reading_that_is_forbidden_later_is_logged_and_goes_on_when_it_is_allowed_again(
    guarded: Guarded, protocol: str
) -> None:
    allow_everything(guarded)
    guarded.configure(kafka={"group.protocol": protocol})
    guarded.produce(10)
    running = guarded.start("run")
    running.wait_for("charged", times=10)
    guarded.access.take_away("topic", guarded.topic)
    running.wait_for("TOPIC_AUTHORIZATION_FAILED")
    guarded.produce(10)
    guarded.access.grant("topic", guarded.topic, "READ", "DESCRIBE")
    running.wait_for("charged", times=20)
    assert running.stop().code == 0
    assert guarded.all_committed()


@PROTOCOLS
def test_a_group_that_is_forbidden_later_is_logged_and_goes_on_when_it_is_allowed_again(
    guarded: Guarded, protocol: str
) -> None:
    allow_everything(guarded)
    guarded.configure(kafka={"group.protocol": protocol})
    guarded.produce(10)
    running = guarded.start("run")
    running.wait_for("charged", times=10)
    guarded.access.take_away("group", guarded.group)
    running.wait_for("GROUP_AUTHORIZATION_FAILED")
    guarded.produce(10)
    guarded.access.grant("group", guarded.group, "READ", "DESCRIBE")
    wait_until(guarded.all_committed, 90, "committed = end")
    ended = running.stop()
    assert ended.code == 0
    assert ended.out.count("charged") >= 20


def test_dead_letters_that_are_forbidden_later_hold_the_offset_until_they_are_allowed_again(
    guarded: Guarded,
) -> None:
    allow_everything(guarded)
    guarded.produce(10)
    running = guarded.start("run")
    running.wait_for("charged", times=10)
    guarded.access.take_away("topic", guarded.dlq)
    produce_values(guarded.kafka.bootstrap, guarded.topic, b"poison")
    running.wait_for("TOPIC_AUTHORIZATION_FAILED")
    assert not guarded.all_committed()
    guarded.access.grant("topic", guarded.dlq, "WRITE", "DESCRIBE")
    wait_until(guarded.all_committed, 90, "committed = end")
    assert running.stop().code == 0
    assert log_ends(guarded.kafka.bootstrap, guarded.dlq) == {0: 1}
