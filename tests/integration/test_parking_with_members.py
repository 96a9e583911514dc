"""Processes that die, come and go while keys are parked: their order stays, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.conftest import MakeTopic
from tests.integration.conftest import protocol_settings
from tests.integration.members import Members, log_ends, produce
from tests.integration.retry_topics import CALM
from tests.integration.shop import DEADLINE_S
from tests.waiting import wait_until
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.model.errors import BrokerUnavailableError
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.events import Produced
from window_consumer.testing.guarantees import NothingLost, OneAtATimePerKey, OrderPerKey, check
from window_consumer.testing.real_kafka import RealKafka

APPLICATION = "tests.integration.parking_member:app"
LEVELS = ("500ms", "1s")
RECORDS = 2_000
KEYS = 200


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
        make_topic("parked", 4),
        unique_name("parked"),
        tmp_path,
        {
            "ordering": "key",
            "concurrency": 8,
            "retry": {"attempts": 1, "levels": list(LEVELS), "on_failure": "park"},
            "breaker": dict(CALM),
            "kafka": {"consumer": protocol_settings(protocol, may_die=True)},
        },
        work_s=0.002,
    )
    yield members
    members.kill_all()


def is_drained(members: Members) -> bool:
    """Return whether everything in source and ladder is committed."""
    ladder = f"{members.group}.{members.topic}"
    topics = members.topic, f"{ladder}.park", *(f"{ladder}.retry.{each}" for each in LEVELS)
    client = {"bootstrap.servers": members.bootstrap}
    try:
        return all(
            committed_offsets(client, members.group, each) == log_ends(members.bootstrap, each)
            for each in topics
        )
    except BrokerUnavailableError:
        return False


def parked(members: Members) -> int:
    """Return how many copies were written to the park topic."""
    return sum(log_ends(members.bootstrap, f"{members.group}.{members.topic}.park").values())


def park_backwards(members: Members, produced: Sequence[Produced]) -> None:
    """Write copies of records, the last ones first: the heads are behind a full window."""
    park = f"{members.group}.{members.topic}.park"
    admin = AdminClient({"bootstrap.servers": members.bootstrap})
    topics.make(admin, NewTopic(park, 4, 1))
    producer = Producer({"bootstrap.servers": members.bootstrap})
    for each in reversed(produced):
        headers = {
            "wc-id": f"{each.topic}/{each.partition}/{each.offset}",
            "wc-orig-topic": each.topic,
            "wc-orig-partition": str(each.partition),
            "wc-orig-offset": str(each.offset),
            "wc-format": "1",
            "wc-reason": "PARKED",
            "wc-attempts": "0",
        }
        producer.produce(park, each.id, each.key, each.partition, headers=list(headers.items()))
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.slow
def test_a_kill_while_a_full_park_window_is_rotated_loses_no_order(members: Members) -> None:
    produced = produce(members.bootstrap, members.topic, 100, 8)
    park_backwards(members, produced)
    members.worker = {**members.worker, "window": {"cells": 2, "cell_records": 10}}
    first = members.start(APPLICATION)
    wait_until(lambda: parked(members) > 100, DEADLINE_S, "some are rotated")
    members.kill(first)
    second = members.start(APPLICATION)
    wait_until(lambda: is_drained(members), DEADLINE_S, "source and ladder are committed")
    assert second.stop() == 0
    guarantees = NothingLost(), OrderPerKey(), OneAtATimePerKey()
    assert check(members.history(produced), *guarantees) == []


@pytest.mark.slow
def test_a_key_keeps_its_order_through_a_kill_and_a_rebalance(members: Members) -> None:
    first, second = (members.start(APPLICATION) for _ in range(2))
    for each in first, second:
        wait_until(lambda each=each: each.has(LogEvent.PARTITIONS_ASSIGNED), DEADLINE_S, "it reads")  # type: ignore[misc] # of a loop
    produced = produce(members.bootstrap, members.topic, RECORDS, KEYS)
    wait_until(lambda: members.calls() > RECORDS // 4, DEADLINE_S, "some are called")
    members.kill(first)
    third = members.start(APPLICATION)
    wait_until(lambda: third.has(LogEvent.PARTITIONS_ASSIGNED), DEADLINE_S, "it reads")
    assert second.stop() == 0
    wait_until(lambda: is_drained(members), DEADLINE_S, "source and ladder are committed")
    assert third.stop() == 0
    assert parked(members)
    guarantees = NothingLost(), OrderPerKey(), OneAtATimePerKey()
    assert check(members.history(produced), *guarantees) == []
