"""Three processes, eight partitions, 100,000 records, and members that come and go half-way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeTopic
from tests.integration.members import Members, produce
from tests.waiting import wait_until
from window_consumer.testing.guarantees import (
    CommittedReachesEnd,
    NoDuplicates,
    NoLateReruns,
    NothingLost,
    OneAtATimePerKey,
    OrderPerKey,
    check,
)
from window_consumer.testing.real_kafka import RealKafka

RECORDS = 100_000
KEYS = 100
COMMIT_INTERVAL_S = 0.5
WORK_S = 0.005
"""Long enough for everybody to be replaced before all is done."""

pytestmark = [pytest.mark.slow, pytest.mark.calm]

PROTOCOLS: dict[str, dict[str, Any]] = {
    "consumer": {"group.protocol": "consumer"},
    "classic": {"group.protocol": "classic", "session.timeout.ms": 6000},
}


@pytest.fixture(params=PROTOCOLS)
def members(
    request: pytest.FixtureRequest,
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> Iterator[Members]:
    members = Members(
        kafka.bootstrap,
        make_topic("rolling", 8),
        unique_name("rolling"),
        tmp_path,
        {
            "ordering": "key",
            "concurrency": 16,
            "commit_interval": "500ms",
            "retry": {"on_failure": "overtake"},
            "kafka": {"consumer": PROTOCOLS[request.param]},
        },
        WORK_S,
    )
    yield members
    members.kill_all()


def half_way(members: Members) -> None:
    wait_until(lambda: members.calls() > RECORDS // 4, 90, "a quarter of the calls")


def until_the_end(members: Members) -> None:
    wait_until(members.all_committed, 120, "committed = end")


def test_rolling_sigterm_loses_repeats_and_reorders_nothing(members: Members) -> None:
    produced = produce(members.bootstrap, members.topic, RECORDS, KEYS)
    first = [members.start() for _ in range(3)]
    half_way(members)
    for member in first:
        calls = members.calls()
        assert member.stop() == 0
        replacement = members.start()
        wait_until(partial(replacement.said, "reads"), 60, "the replacement has joined")
        wait_until(partial(members.has_called_since, calls), 60, "progress")
    until_the_end(members)
    assert set(members.stop_all()) == {0}
    assert (
        check(
            members.history(produced),
            NothingLost(),
            OrderPerKey(),
            OneAtATimePerKey(),
            CommittedReachesEnd(),
            NoDuplicates(),
        )
        == []
    )


def test_rolling_kill_9_loses_and_reorders_nothing_and_repeats_little(members: Members) -> None:
    produced = produce(members.bootstrap, members.topic, RECORDS, KEYS)
    first = [members.start() for _ in range(3)]
    half_way(members)
    for member in first:
        calls = members.calls()
        members.kill(member)
        members.start()
        wait_until(partial(members.has_called_since, calls), 60, "progress")
    until_the_end(members)
    members.stop_all()
    assert (
        check(
            members.history(produced),
            NothingLost(),
            OrderPerKey(),
            OneAtATimePerKey(),
            CommittedReachesEnd(),
            NoLateReruns(COMMIT_INTERVAL_S + 1.0),
        )
        == []
    )
