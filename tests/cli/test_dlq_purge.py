"""``window-consumer dlq purge`` on a real Kafka: the embedded broker deletes nothing when asked."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.cli.dead_letters import headers_of
from tests.commands import Commands, Ended
from tests.conftest import MakeTopic
from tests.integration.access import Access
from tests.model.test_dead_letter import SPRING
from window_consumer.model.protocols import Headers
from window_consumer.testing.real_kafka import RealKafka

HOUR_MS = 3_600_000


@pytest.fixture
def group(kafka: RealKafka, commands: Commands, unique_name: Callable[[str], str]) -> str:
    name = unique_name("shop")
    commands.configure(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "workers": {"charge": {"group": name, "topics": ["orders"]}},
        }
    )
    return name


@pytest.fixture
def dead_letters(kafka: RealKafka, group: str) -> str:
    """A topic of two partitions: offsets 0 and 1 of each are three and two hours old, 2 is new."""
    name = f"{group}.orders.dlq"
    make(kafka, name, 2)
    for partition in (0, 1):
        fill(kafka, name, headers_of(1), partition)
    return name


def make(kafka: RealKafka, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topics.make(admin, NewTopic(name, partitions, 1))


def fill(kafka: RealKafka, topic: str, headers: Headers, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    now = round(time.time() * 1000)
    for hours in (3, 2, 0):
        producer.produce(
            topic,
            b"{}",
            partition=partition,
            timestamp=now - hours * HOUR_MS,
            headers=list(headers),
        )
    assert producer.flush(30) == 0


def numbers_of(line: str) -> tuple[str, list[int]]:
    """Return the partition that a line begins with, and its numbers: offsets, and how many stay."""
    partition, _, numbers = line.strip().partition(": ")
    return partition, [int(each) for each in re.findall(r"\d+", numbers)]


def totals(commands: Commands, topic: str) -> int:
    found = commands.run("dlq", "list", "--json", "--topic", topic).json["topics"][topic]
    return int(found["total"])


def test_what_is_older_is_deleted_and_the_rest_stays(commands: Commands, dead_letters: str) -> None:
    ended = commands.run("dlq", "purge", "--before", "1h", "--yes")
    assert (ended.code, ended.err) == (0, "")
    _, *reported = ended.out.splitlines()
    assert [numbers_of(line) for line in reported] == [
        (f"{dead_letters}[0]", [0, 1, 1]),
        (f"{dead_letters}[1]", [0, 1, 1]),
    ]
    assert totals(commands, dead_letters) == 2
    again = commands.run("dlq", "purge", "--before", "1h", "--yes")
    assert again.code == 0
    assert f"{dead_letters}[" not in again.out


def test_a_dry_run_deletes_nothing_and_neither_does_a_run_without_yes(
    commands: Commands, dead_letters: str
) -> None:
    ended = commands.run("dlq", "purge", "--before", "1h", "--dry-run", "--json", "--yes")
    assert ended.code == 0
    reported = json.loads(ended.out)
    assert reported["deleted"] is False
    assert [each["offsets"] for each in reported["partitions"]] == [2, 2]
    refused = commands.run("dlq", "purge", "--before", "1h")
    assert refused.code == 2
    assert f"{dead_letters}[1]: " in refused.err
    assert "add --yes" in refused.err
    assert totals(commands, dead_letters) == 6


def test_a_point_in_time_between_them(commands: Commands, dead_letters: str) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 2.5 * 3600))
    ended = commands.run("dlq", "purge", "--before", moment, "--yes", "--json")
    assert [each["before"] for each in ended.json["partitions"]] == [1, 1]
    assert totals(commands, dead_letters) == 4
    ended = commands.run("dlq", "purge", "--before", "2100-01-01", "--yes", "--json")
    assert [each["before"] for each in ended.json["partitions"]] == [3, 3]
    assert totals(commands, dead_letters) == 0


def test_an_offset_is_one_of_a_partition(commands: Commands, dead_letters: str) -> None:
    ended = commands.run("dlq", "purge", "--before", "2", "--yes")
    assert ended.code == 2
    assert "--partition" in ended.err
    ended = commands.run("dlq", "purge", "--before", "2", "--partition", "1", "--yes")
    assert numbers_of(ended.out.splitlines()[1]) == (f"{dead_letters}[1]", [0, 1, 1])
    ended = commands.run("dlq", "purge", "--before", "99", "--partition", "1", "--yes")
    assert numbers_of(ended.out.splitlines()[1]) == (f"{dead_letters}[1]", [2, 0])
    ended = commands.run("dlq", "purge", "--before", "1", "--partition", "7", "--yes")
    assert ended.code == 2
    assert totals(commands, dead_letters) == 3


def test_only_topics_of_dead_letters_are_emptied(
    commands: Commands, kafka: RealKafka, make_topic: MakeTopic, group: str
) -> None:
    """A slip of the hand in --topic must not cost anybody the records of another topic."""
    other = make_topic("payments")
    fill(kafka, other, [("tenant", b"eu")])
    ended = commands.run("dlq", "purge", "--topic", other, "--before", "1h", "--yes")
    assert ended.code == 2
    assert f"error: {other}[0]: " in ended.err
    assert totals(commands, other) == 3
    springs = make_topic("orders-dlt")
    fill(kafka, springs, SPRING)
    assert purge_there(commands, kafka, springs).code == 0
    assert totals(commands, springs) == 1
    config = {"group": group, "topics": [other]}
    commands.configure(
        {"kafka": {"bootstrap.servers": kafka.bootstrap}, "workers": {"charge": config}}
    )
    ended = commands.run("dlq", "purge", "--topic", other, "--before", "1h", "--yes")
    assert ended.code == 2
    assert f"--topic {other}" in ended.err


def purge_there(commands: Commands, kafka: RealKafka, topic: str) -> Ended:
    where = ("--bootstrap", kafka.bootstrap, "--topic", topic)
    return commands.run("dlq", "purge", *where, "--before", "1h", "--yes")


def test_deleting_needs_a_right(commands: Commands, kafka: RealKafka, dead_letters: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    Access(admin, "bob").grant("topic", dead_letters, "READ", "DESCRIBE")
    config = {"group": dead_letters.split(".", maxsplit=1)[0], "topics": ["orders"]}
    commands.configure({"kafka": kafka.sasl_settings("bob"), "workers": {"charge": config}})
    ended = commands.run("dlq", "purge", "--before", "1h", "--yes")
    assert ended.code == 2
    assert dead_letters in ended.err
    assert "ACL" in ended.err


@pytest.mark.parametrize("before", ["yesterday", "-5", "3 weeks", "2026-13-01"])
def test_what_is_neither_time_nor_offset_is_wrong_usage(commands: Commands, before: str) -> None:
    ended = commands.run("dlq", "purge", f"--before={before}", "--yes")
    assert ended.code == 2
    assert "14d" in ended.err
