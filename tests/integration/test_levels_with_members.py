"""Processes that come and go while records wait in retry levels: a lane still has one owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import MakeTopic
from tests.integration.conftest import protocol_settings
from tests.integration.members import Member, Members, produce
from tests.integration.retry_topics import CALM, RetryTopics
from tests.integration.shop import DEADLINE_S
from tests.waiting import wait_until
from window_consumer.testing.events import Produced
from window_consumer.testing.guarantees import (
    CommittedReachesEnd,
    NothingLost,
    OneAtATimePerKey,
    OrderPerKey,
    check,
)
from window_consumer.testing.real_kafka import RealKafka

LEVELS = ("300ms", "1s")
APPLICATION = "tests.integration.failing_member:app"
RECORDS = 2_000
KEYS = 40


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
        make_topic("laddered", 4),
        unique_name("laddered"),
        tmp_path,
        {
            "ordering": "key",
            "concurrency": 16,
            "commit_interval": "200ms",
            "retry": {"attempts": 1, "levels": list(LEVELS), "on_failure": "overtake"},
            "breaker": dict(CALM),
            "kafka": {"consumer": protocol_settings(protocol, may_die=True)},
        },
        work_s=0.01,
    )
    yield members
    members.kill_all()


@pytest.mark.slow
def test_members_that_stop_and_die_lose_nothing_and_never_run_two_of_a_key_at_once(
    members: Members,
) -> None:
    topics = RetryTopics(
        {"bootstrap.servers": members.bootstrap, "log_level": 0},
        members.group,
        members.topic,
        LEVELS,
    )
    produced: list[Produced] = []

    def busy(*joined: Member) -> None:
        """Wait for members to have joined, then for work on new records, some of which failed."""
        for member in joined:
            wait_until(partial(member.said, "reads"), DEADLINE_S, "it has joined")
        calls = members.calls()
        produced.extend(produce(members.bootstrap, members.topic, RECORDS, KEYS))
        wait_until(lambda: members.calls() > calls + RECORDS // 2, DEADLINE_S, "half of the calls")

    first, second, third = (members.start(APPLICATION) for _ in range(3))
    busy(first, second, third)
    assert first.stop() == 0
    busy(members.start(APPLICATION))
    members.kill(second)
    busy(members.start(APPLICATION))
    wait_until(topics.are_drained, DEADLINE_S, "source and levels are committed")
    members.stop_all()
    assert all(topics.copies(delay) for delay in LEVELS)
    assert topics.dead_letters()
    assert (
        check(
            topics.by_record(members.history(produced)),
            NothingLost(),
            OrderPerKey(),
            OneAtATimePerKey(),
            CommittedReachesEnd(),
        )
        == []
    )
