"""Processes that are frozen beyond their session, killed while a record hovers, or restarted."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeTopic
from tests.integration.conftest import protocol_settings
from tests.integration.members import LONG_MS, Member, Members, produce, set_session
from tests.integration.shop import DEADLINE_S, Shop
from tests.waiting import wait_until
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.events import Ended, OutlivedLogged, Started
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

MembersOf = Callable[..., Members]
COMMIT_INTERVAL_S = 0.5


@pytest.fixture
def members_of(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[MembersOf]:
    started: list[Members] = []

    def make(partitions: int, kafka_settings: Mapping[str, Any], **worker: Any) -> Members:
        worker = {
            "ordering": "key",
            "concurrency": 4,
            "retry": {"on_failure": "overtake"},
            "kafka": {"consumer": dict(kafka_settings)},
            **worker,
        }
        topic = make_topic("members", partitions)
        directory = tmp_path / topic
        directory.mkdir()
        members = Members(kafka.bootstrap, topic, unique_name("members"), directory, worker)
        started.append(members)
        return members

    yield make
    for members in started:
        members.kill_all()


def until(what: Callable[[], bool], why: str) -> None:
    wait_until(what, DEADLINE_S, why)


def reads(member: Member, partitions: int) -> bool:
    lines = member.lines_of(LogEvent.PARTITIONS_ASSIGNED, worker="work")
    return bool(lines) and lines[-1]["partitions"] == partitions


def unlogged_reruns(late: Member, other: Member, since: float) -> list[Started]:
    """Return the calls begun ``since`` then for records that the other has had, too, unlogged."""
    theirs = {(call.partition, call.offset) for call in other.events() if isinstance(call, Started)}
    logged = {
        (call.partition, call.offset) for call in late.events() if isinstance(call, OutlivedLogged)
    }
    return [
        call
        for call in late.events()
        if isinstance(call, Started) and call.time >= since
        if (call.partition, call.offset) in theirs - logged
    ]


class CommitWatch:
    """Looks at the committed offsets again and again: they may not go back."""

    def __init__(self, members: Members):
        self._members = members
        self._seen: dict[int, int] = {}
        self.back: list[str] = []

    def at_the_end(self) -> bool:
        now = self._members.committed()
        for partition, before in self._seen.items():
            if now.get(partition, 0) < before:
                self.back.append(f"{partition}: {before} became {now.get(partition)}")
        self._seen = now
        return now == self._members.ends()


@pytest.mark.slow
@pytest.mark.calm
def test_a_frozen_member_loses_its_partitions_and_changes_nothing_when_it_goes_on(
    members_of: MembersOf, protocol: str
) -> None:
    """It goes on just when the other begins with the very records that it holds itself."""
    settings = protocol_settings(protocol, may_die=True)
    if protocol == "classic":
        settings["session.timeout.ms"] = 3000
    members = members_of(4, settings)
    members.work_s = 0.001
    produced = produce(members.bootstrap, members.topic, 40_000, 40)
    frozen, other = members.start(), members.start()
    until(lambda: reads(frozen, 2) and reads(other, 2), "both read")
    begun = len(list(frozen.events()))
    until(lambda: len(list(frozen.events())) > begun + 400, "it works on what it has now")
    frozen.process.send_signal(signal.SIGSTOP)
    until(lambda: reads(other, 4), "the other takes over")
    thawed_at = time.monotonic()
    frozen.process.send_signal(signal.SIGCONT)
    commits = CommitWatch(members)
    until(commits.at_the_end, "committed = end")
    assert set(members.stop_all()) == {0}
    assert commits.back == []
    assert unlogged_reruns(frozen, other, thawed_at) == []
    assert frozen.has(LogEvent.PROCESS_FROZEN)
    assert frozen.has(LogEvent.PARTITIONS_LOST, partitions=2)
    assert frozen.has(LogEvent.CALL_OUTLIVED)
    assert (
        check(
            members.history(produced),
            NothingLost(),
            OrderPerKey(),
            OneAtATimePerKey(),
            CommittedReachesEnd(),
        )
        == []
    )


def test_what_had_finished_beyond_a_hovering_record_does_not_run_again_after_a_kill(
    members_of: MembersOf,
) -> None:
    members = members_of(1, protocol_settings("consumer", may_die=True), commit_interval="500ms")
    stuck = members.directory / "stuck"
    stuck.write_text("3")
    produced = produce(members.bootstrap, members.topic, 2_000, 500)
    looked_at = Shop(
        {"bootstrap.servers": members.bootstrap}, members.topic, members.group, members.directory
    )
    first = members.start("tests.integration.stuck_member:app")
    behind = [each.offset for each in produced if each.key == "k3"]
    looked_at.until_open(*behind)
    assert members.committed() == {0: 0}
    members.kill(first)
    stuck.unlink()
    second = members.start("tests.integration.stuck_member:app")
    until(members.all_committed, "committed = end")
    assert set(members.stop_all()) == {0, -signal.SIGKILL}
    again = [event.offset for event in second.events() if isinstance(event, Ended)]
    assert sorted(again) == sorted(behind)
    guarantees = NothingLost(), OrderPerKey(), NoLateReruns(COMMIT_INTERVAL_S + 1), NoDuplicates()
    assert check(members.history(produced), *guarantees) == []


ASSIGNMENTS: dict[str, dict[str, Any]] = {
    "consumer, range": {"group.remote.assignor": "range"},
    "consumer, uniform": {"group.remote.assignor": "uniform"},
    "classic, range": {"partition.assignment.strategy": "range"},
    "classic, roundrobin": {"partition.assignment.strategy": "roundrobin"},
    "classic, cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
}


@pytest.mark.parametrize(
    ("assignment", "static"),
    [
        *((assignment, False) for assignment in ASSIGNMENTS),
        ("consumer, range", True),
        ("classic, cooperative-sticky", True),
    ],
    ids=lambda each: ["dynamic", "static"][each] if isinstance(each, bool) else each,
)
def test_a_member_can_be_restarted_with_every_assignor(
    members_of: MembersOf, assignment: str, *, static: bool
) -> None:
    protocol = assignment.partition(",")[0]
    settings = {**protocol_settings(protocol), **ASSIGNMENTS[assignment]}
    if static:
        settings["group.instance.id"] = "${INSTANCE}"
    # Other assignors than range are refused where there is an order to keep.
    ordered = assignment.endswith("range")
    members = members_of(4, settings, ordering="key" if ordered else "unordered")
    set_session(members.bootstrap, members.group, LONG_MS)
    members.work_s = 0.005
    produced = produce(members.bootstrap, members.topic, 4_000, 40)
    first, second = members.start(), members.start()
    until(lambda: reads(first, 2) and reads(second, 2), "both read two partitions")
    assert first.stop() == 0
    again = members.start(instance=first.name)
    # What is not up yet dies of a signal, as any process does.
    until(lambda: again.has(LogEvent.PARTITIONS_ASSIGNED), "it is back")
    until(members.all_committed, "committed = end")
    assert set(members.stop_all()) == {0}
    always = NothingLost(), CommittedReachesEnd(), NoDuplicates()
    in_order = (OrderPerKey(), OneAtATimePerKey()) if ordered else ()
    assert check(members.history(produced), *always, *in_order) == []
