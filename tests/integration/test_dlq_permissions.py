"""``dlq`` for users with few rights: what may be looked at is shown, what is missing is named."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from attrs import frozen
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.cli.dead_letters import headers_of
from tests.commands import Commands, Ended
from tests.integration.access import Access
from window_consumer.testing.real_kafka import RealKafka

USER = "bob"


@frozen
class Visitor:
    """Somebody who may read the dead letters of a group, and nothing else unless it is granted."""

    commands: Commands
    access: Access
    admin: AdminClient
    group: str

    @property
    def dead_letters(self) -> str:
        return f"{self.group}.orders.dlq"

    @property
    def state(self) -> str:
        return f"{self.group}.dlq.state"

    @property
    def entry(self) -> str:
        return f"{self.group}.orders.retry.now"

    @property
    def progress(self) -> str:
        """Return the group that holds the progress of a redrive of everything."""
        return str(self.redrive_as_admin("--dry-run").json["redrives"][0]["progress_group"])

    def redrive_as_admin(self, *options: str) -> Ended:
        return self.commands.run("dlq", "redrive", "-c", "admin.yaml", "--json", *options)

    def run(self, *arguments: str) -> Ended:
        return self.commands.run("dlq", *arguments)

    def make(self, *names: str) -> None:
        topics.make(self.admin, *(NewTopic(name, 1, 1) for name in names))


@pytest.fixture
def visitor(kafka: RealKafka, commands: Commands, unique_name: Callable[[str], str]) -> Visitor:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    visitor = Visitor(commands, Access(admin, USER), admin, unique_name("shop"))
    workers = {"charge": {"group": visitor.group, "topics": ["orders"]}}
    commands.configure({"kafka": {"bootstrap.servers": kafka.bootstrap}, "workers": workers})
    (commands.directory / "workers.yaml").rename(commands.directory / "admin.yaml")
    commands.configure({"kafka": kafka.sasl_settings(USER), "workers": workers})
    visitor.make(visitor.dead_letters)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for offset in (1, 2):
        producer.produce(visitor.dead_letters, b"{}", b"c1", headers=list(headers_of(offset)))
    assert producer.flush(30) == 0
    return visitor


def test_who_may_see_no_topic_is_warned_that_there_may_be_some(visitor: Visitor) -> None:
    ended = visitor.run("list")
    assert ended.code == 0
    assert "(DESCRIBE)" in ended.out


@pytest.mark.parametrize("right", [(), ("DESCRIBE",)], ids=["not seen", "not read"])
def test_who_may_not_read_what_is_resolved_sees_the_dead_letters_all_the_same(
    visitor: Visitor, right: tuple[str, ...]
) -> None:
    assert visitor.redrive_as_admin().code == 0
    visitor.access.grant("topic", visitor.dead_letters, "READ")
    if right:
        visitor.access.grant("topic", visitor.state, *right)
    ended = visitor.run("list")
    assert ended.code == 0, ended.err
    (summary,) = (each for each in ended.out.splitlines() if " 2 dead letters" in each)
    assert " 0 " not in summary
    assert f"topic {visitor.state}" in ended.out or f"{visitor.state}[0]" in ended.out
    assert "2  RETRIES_EXHAUSTED" in ended.out
    found = visitor.run("list", "--json").json["topics"][visitor.dead_letters]
    assert (found["total"], found["open"], found["resolved"]) == (2, None, None)
    shown = visitor.run("show", "orders/0/2")
    assert shown.code == 0
    (resolved,) = (each for each in shown.out.splitlines() if each.startswith("  resolved "))
    assert visitor.state in resolved
    view = visitor.run("show", "orders/0/2", "--json").json
    assert view["resolved"] is None
    assert visitor.state in view["resolved_unknown"]
    visitor.access.grant("topic", visitor.state, "READ")
    assert re.search(r" 2 dead letters, 0 .*, 2 ", visitor.run("list").out)


def test_a_dry_run_needs_no_right_to_write_and_names_what_it_may_not_read(visitor: Visitor) -> None:
    visitor.make(visitor.entry, visitor.state)
    assert_lacks(visitor.run("redrive", "--dry-run"), f"READ on topic {visitor.dead_letters}")
    visitor.access.grant("topic", visitor.dead_letters, "READ")
    assert_lacks(visitor.run("redrive", "--dry-run"), f"READ on topic {visitor.state}")
    visitor.access.grant("topic", visitor.state, "READ")
    assert_lacks(visitor.run("redrive", "--dry-run"), f"READ on group {visitor.progress}")
    visitor.access.grant("group", visitor.progress, "READ")
    ended = visitor.run("redrive", "--dry-run")
    assert ended.code == 0, ended.err
    assert re.search(r"\b2 would\b", ended.out)


def test_each_right_that_a_redrive_needs_is_named_at_once_when_it_is_missing(
    visitor: Visitor,
) -> None:
    visitor.make(visitor.entry, visitor.state)
    progress = visitor.progress
    for kind, name, operation in (
        ("topic", visitor.dead_letters, "READ"),
        ("topic", visitor.state, "READ"),
        ("topic", visitor.entry, "WRITE"),
        ("topic", visitor.state, "WRITE"),
        ("group", progress, "READ"),
    ):
        begun = time.monotonic()
        assert_lacks(visitor.run("redrive"), f"{operation} on {kind} {name}")
        assert time.monotonic() - begun < 30, "it is not waited for"
        visitor.access.grant(kind, name, operation)
    assert visitor.run("redrive").code == 0


def test_a_source_topic_that_may_not_be_seen_is_not_called_gone(visitor: Visitor) -> None:
    visitor.make(visitor.entry, visitor.state)
    for topic in (visitor.dead_letters, visitor.state):
        visitor.access.grant("topic", topic, "READ", "WRITE")
    ended = visitor.run("redrive", "--to-source", "--yes")
    assert ended.code == 2
    assert " orders " in ended.err
    assert "(DESCRIBE)" in ended.err


def assert_lacks(ended: Ended, right: str) -> None:
    assert (ended.code, ended.out) == (2, "")
    assert f"needs {right}" in ended.err
    assert " topics plan" in ended.err
