"""Members of one group with different levels: a lane has one owner all the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import MakeTopic
from tests.integration.conftest import protocol_settings
from tests.integration.members import Member, Members, produce
from tests.integration.retry_topics import RetryTopics
from tests.integration.shop import DEADLINE_S
from tests.waiting import wait_until
from window_consumer.model import headers as names
from window_consumer.testing.events import Produced
from window_consumer.testing.guarantees import (
    CommittedReachesEnd,
    NothingLost,
    OneAtATimePerKey,
    check,
)
from window_consumer.testing.real_kafka import RealKafka

RECORDS = 3_000
SIXTH = 6
"""One record of so many has a copy in each of the levels."""
KEYS = 12
PARTITIONS = 4
FIRST_LEVEL, OTHER_LEVEL = "1s", "2s"


@pytest.fixture
def members(
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    protocol: str,
) -> Iterator[Members]:
    members = Members(
        kafka.bootstrap,
        make_topic("changing", PARTITIONS),
        unique_name("changing"),
        tmp_path,
        {
            "ordering": "key",
            "concurrency": 16,
            "commit_interval": "200ms",
            "kafka": {"consumer": protocol_settings(protocol)},
        },
        work_s=0.01,
    )
    yield members
    members.kill_all()


def start(members: Members, level: str, *expected: str) -> Member:
    """Start a member with this level, and wait until it reads something of these topics."""
    retry = {"attempts": 1, "levels": [level], "on_failure": "overtake"}
    members.worker = {**members.worker, "retry": retry}
    member = members.start()
    for topic in expected:
        wait_until(partial(member.said, f"{topic}["), DEADLINE_S, f"it reads {topic}")
    return member


def copy_all(bootstrap: str, level: str, produced: Sequence[Produced]) -> None:
    """Write copies that are due, as the former owner of all partitions would have left them."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for record in produced:
        headers: list[tuple[str, str | bytes | None]] = [
            (names.ORIGINAL_TOPIC, record.topic.encode()),
            (names.ORIGINAL_PARTITION, b"%d" % record.partition),
            (names.ORIGINAL_OFFSET, b"%d" % record.offset),
            (names.ATTEMPTS, b"1"),
            (names.NOT_BEFORE, b"%d" % (time.time() * 1000)),
        ]
        producer.produce(level, b"copy", record.key, record.partition, headers=headers)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.slow
def test_a_key_and_its_copies_do_not_run_at_once_while_members_have_other_levels(
    members: Members,
) -> None:
    client = {"bootstrap.servers": members.bootstrap, "log_level": 0}
    topics = RetryTopics(client, members.group, members.topic, (FIRST_LEVEL, OTHER_LEVEL))
    of_first, of_other = topics.names
    first = start(members, FIRST_LEVEL, members.topic, of_first)
    other = start(members, OTHER_LEVEL, members.topic, of_other)
    assert not first.said(of_other), "there is no reason to read it yet"
    assert not other.said(of_first), "likewise"
    produced = produce(members.bootstrap, members.topic, RECORDS, KEYS)
    # Each looks for such topics every five seconds, at a time of its own.
    copy_all(members.bootstrap, of_first, produced[::SIXTH])
    copy_all(members.bootstrap, of_other, produced[1::SIXTH])
    try:
        wait_until(topics.are_drained, DEADLINE_S, "source and levels are committed")
    except AssertionError as error:
        pytest.fail(f"{error}\n{members.last_words()}")
    assert members.stop_all() == [0, 0]
    history = topics.by_record(members.history(produced))
    assert check(history, NothingLost(), OneAtATimePerKey(), CommittedReachesEnd()) == []
    assert first.said(of_other), "it has called copies of its keys"
    assert other.said(of_first), "so has this one"
