"""The answer to a heartbeat that brought an assignment is lost: the group goes on all the same."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.conformance.reader import Reader
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.settings import ConsumerNeeds, admin_settings
from window_consumer.kafka.source import KafkaSource
from window_consumer.kafka.watchdogs.assignment import AssignmentTimes
from window_consumer.model.record import TopicPartition
from window_consumer.testing.real_kafka import RealKafka

PARTITIONS = 4
ROUNDS = 2
"""One in which partitions move to the first member, and one in which they move away."""

QUICK = AssignmentTimes(check_s=0.2, ask_s=0.5, sure_s=3.0, gentle_s=1.0)

TAKEN_S = 0.1
"""A coordinator has taken a new subscription by then, and the other's next heartbeat is not sent:
those come every 0.5 s."""


class Member:
    """A reader, and how many lines its client has written."""

    def __init__(self, kafka: RealKafka, group: str):
        self.log = ClientLog(logging.getLogger(f"window_consumer.{group}"))
        user = {"bootstrap.servers": kafka.bootstrap, "topic.metadata.refresh.interval.ms": 500}
        cluster = Cluster(admin_settings(user, "w"), self.log)
        needs = ConsumerNeeds(group, "w", ordered=True, memory=2**26, partitions=PARTITIONS)
        self.reader = Reader(KafkaSource(user, needs, cluster, self.log, assignment_times=QUICK))

    @property
    def numbers(self) -> set[int]:
        return {name.partition for name in self.reader.held}


@pytest.fixture
def own(kafka: RealKafka, tmp_path: Path) -> Iterator[RealKafka]:
    """One that can be frozen. It depends on ``kafka`` to be skipped where there is none."""
    assert kafka.bootstrap
    with RealKafka.start(tmp_path / "own") as started:
        yield started


def freeze(kafka: RealKafka, *members: Member) -> None:
    """Let the clients give requests up that the coordinator answers later."""
    before = [member.log.lines for member in members]
    kafka.pause()
    try:
        members[0].reader.until(
            lambda: all(m.log.lines > was for m, was in zip(members, before, strict=True)),
            *(member.reader for member in members[1:]),
        )
    finally:
        kafka.resume()


def test_members_whose_heartbeats_are_answered_too_late_read_everything(
    own: RealKafka, unique_name: Callable[[str], str]
) -> None:
    group, always, sometimes = (unique_name(name) for name in ("deaf", "always", "sometimes"))
    admin = AdminClient({"bootstrap.servers": own.bootstrap})
    topics.make(admin, NewTopic(always, PARTITIONS, 1), NewTopic(sometimes, PARTITIONS, 1))
    one, other = Member(own, group), Member(own, group)
    one.reader.join(always)
    other.reader.join(always, sometimes)
    everything = {TopicPartition(t, p) for t in (always, sometimes) for p in range(PARTITIONS)}

    def all_is_dealt() -> bool:
        mine, yours = one.reader.held, other.reader.held
        return (
            mine | yours == everything
            and mine.isdisjoint(yours)
            and {len(one.numbers), len(other.numbers)} == {2, 4 if reads == (always,) else 2}
        )

    reads: tuple[str, ...] = (always,)
    one.reader.until(all_is_dealt, other.reader)
    for round_ in range(ROUNDS):
        reads = (always,) if round_ % 2 else (always, sometimes)
        one.reader.source.subscribe(reads, one.reader)
        time.sleep(TAKEN_S)
        freeze(own, one, other)
        one.reader.until(all_is_dealt, other.reader)
    for member in (one, other):
        assert member.reader.source.close(10.0)
