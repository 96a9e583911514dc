"""A record whose handler ends the process, under a supervisor that starts it again each time."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests import reading
from tests.conftest import MakeTopic
from tests.integration.conftest import protocol_settings
from tests.integration.members import SHORT_MS, Member, Members, produce, set_session
from tests.integration.shop import DEADLINE_S
from tests.waiting import wait_until
from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.engine.guards.crash_history import most_ends
from window_consumer.model import headers as names
from window_consumer.testing.events import Ended
from window_consumer.testing.real_kafka import RealKafka

APPLICATION = "tests.integration.crashing_member:app"
CONCURRENCY = 4
FEWEST, MOST = most_ends(3, CONCURRENCY, 16_000)


@pytest.fixture
def members_of(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., Members]]:
    made: list[Members] = []

    def make(partitions: int, consumer: dict[str, Any], **worker: Any) -> Members:
        worker = {
            "concurrency": CONCURRENCY,
            "retry": {"on_failure": "overtake"},
            "kafka": {"consumer": consumer},
            **worker,
        }
        topic = make_topic("deadly", partitions)
        members = Members(kafka.bootstrap, topic, unique_name("deadly"), tmp_path, worker)
        set_session(kafka.bootstrap, members.group, SHORT_MS)  # each death costs as much
        made.append(members)
        return members

    yield make
    for members in made:
        members.kill_all()


def is_done(members: Members) -> bool:
    """Return whether everything is committed; a coordinator is asked once somebody has found it."""
    return members.calls() > 0 and members.all_committed()


def has_ended_or_is_done(member: Member, members: Members) -> bool:
    return member.process.poll() is not None or is_done(members)


def has_advanced_since(members: Members, calls: int) -> bool:
    """Return whether two calls ended: if suspects start alone, the first is committed by then."""
    return members.calls() > calls + 1


def supervise(members: Members, instance: str) -> int:
    """Start a member again each time it was killed, until all is done; return how often it was."""
    for ends in range(MOST + 10):
        member = members.start(APPLICATION, instance=instance)
        wait_until(partial(has_ended_or_is_done, member, members), DEADLINE_S, "ended or done")
        if is_done(members):
            return ends
        assert member.process.wait() == -signal.SIGKILL, member.log.read_text()
    pytest.fail(f"still ending after {MOST + 10} starts")


def dead_letters(kafka: RealKafka, members: Members) -> list[Any]:
    topic = f"{members.group}.{members.topic}.dlq"
    return reading.read_all({"bootstrap.servers": kafka.bootstrap}, topic)


def values_called(members: Members, values: dict[tuple[int, int], str]) -> set[str]:
    events = [event for member in members.members for event in member.events()]
    return {values[e.partition, e.offset] for e in events if isinstance(e, Ended)}


@pytest.mark.parametrize(
    ("consumer", "ordering"),
    [
        # A static member that comes back gets its partitions at once.
        pytest.param(
            {"group.instance.id": "${INSTANCE}", **protocol_settings("classic", may_die=True)},
            "key",
            id="static",
        ),
        pytest.param(
            protocol_settings("consumer", may_die=True),
            "unordered",
            id="dynamic",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_record_that_kills_the_process_is_dead_lettered_and_nothing_else_is(
    kafka: RealKafka, members_of: Callable[..., Members], consumer: dict[str, Any], ordering: str
) -> None:
    members = members_of(2, consumer, ordering=ordering)
    produced = produce(kafka.bootstrap, members.topic, 400, 20)
    values = {(each.partition, each.offset): each.id for each in produced}
    deadly = "77"
    (members.directory / "deadly").write_text(deadly)
    ends = supervise(members, "one")
    assert FEWEST <= ends <= MOST
    (copy,) = dead_letters(kafka, members)
    headers = dict(copy.headers())
    assert copy.value() == deadly.encode()
    assert headers[names.REASON] == b"CRASHED"
    assert headers[names.ATTEMPTS] == b"3"
    assert headers[names.ERROR_CLASS] == b"window_consumer.model.errors.ProcessCrashedError"
    assert b"the process ended 3 times" in headers[names.ERROR_MESSAGE]
    assert headers[names.ERROR_STACK] == b""
    assert values_called(members, values) == set(values.values()) - {deadly}
    assert members.stop_all()[-1] == 0


@pytest.mark.slow
def test_the_record_is_known_wherever_its_partition_goes(
    kafka: RealKafka, members_of: Callable[..., Members]
) -> None:
    """Two processes take turns in dying; each time the other, or a new one, takes over."""
    members = members_of(2, protocol_settings("consumer", may_die=True), ordering="key")
    produced = produce(kafka.bootstrap, members.topic, 400, 20)
    values = {(each.partition, each.offset): each.id for each in produced}
    (members.directory / "deadly").write_text("77")
    ends = 0
    running: list[Member] = [members.start(APPLICATION), members.start(APPLICATION)]
    while not is_done(members):
        wait_until(
            lambda: (
                any(each.process.poll() is not None for each in running) or members.all_committed()
            ),
            DEADLINE_S,
            "one ended or all is done",
        )
        for index, member in enumerate(running):
            if member.process.poll() is not None:
                ends += 1
                running[index] = members.start(APPLICATION)
        assert ends <= MOST + 2
    (copy,) = dead_letters(kafka, members)
    assert copy.value() == b"77"
    assert values_called(members, values) == set(values.values()) - {"77"}
    assert {code for code in members.stop_all() if code >= 0} == {0}


def test_kills_from_outside_cost_no_record_anything(
    kafka: RealKafka, members_of: Callable[..., Members]
) -> None:
    consumer = {"group.instance.id": "${INSTANCE}", **protocol_settings("classic", may_die=True)}
    members = members_of(1, consumer)
    members.work_s = 0.05
    # So many that none of those that are killed is through with them, however late that is.
    produced = produce(kafka.bootstrap, members.topic, 5_000, 20)
    values = {(each.partition, each.offset): each.id for each in produced}
    (members.directory / "deadly").write_text("")
    for _ in range(6):
        calls = members.calls()
        member = members.start(APPLICATION, instance="one")
        wait_until(partial(has_advanced_since, members, calls), DEADLINE_S, "it works")
        member.kill()
    members.work_s = 0.001
    members.start(APPLICATION, instance="one")
    wait_until(lambda: is_done(members), DEADLINE_S, "all done")
    assert members.stop_all()[-1] == 0
    assert dead_letters(kafka, members) == []
    assert values_called(members, values) == set(values.values())


def test_a_clean_stop_leaves_nothing_to_suspect(
    kafka: RealKafka, members_of: Callable[..., Members]
) -> None:
    consumer = {"group.instance.id": "${INSTANCE}", **protocol_settings("classic", may_die=True)}
    members = members_of(1, consumer)
    produce(kafka.bootstrap, members.topic, 10, 5)
    (members.directory / "deadly").write_text("")
    members.start(APPLICATION, instance="one")
    wait_until(lambda: is_done(members), DEADLINE_S, "all done")
    assert members.stop_all() == [0]
    note = decode(_metadata(kafka, members))
    assert note is not None
    assert (note.clean, note.unclean_ends, note.suspect, note.crashes) == (True, 0, None, ())


def _metadata(kafka: RealKafka, members: Members) -> str:

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": members.group})
    try:
        (found,) = consumer.committed([TopicPartition(members.topic, 0)], timeout=60)
        return str(found.metadata)
    finally:
        consumer.close()
