"""Where partitions begin that are assigned, and which of them have to wait."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.reader import Reader
from window_consumer.engine.commits.start_offset import NoOffsetError, OnNoOffset
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.partitions.assignments import RETRY_S, Assignments
from window_consumer.runtime.partitions.start_offsets import CommittedStartOffsets
from window_consumer.testing.fakes.broker import FakeBroker

GROUP = "shop"
NAMES = [TopicPartition("orders", partition) for partition in range(3)]


class Scene:
    """Assignments of a member that has all partitions."""

    def __init__(self, on_no_offset: OnNoOffset = "earliest"):
        self.broker = FakeBroker()
        self.broker.create_topic("orders", 3)
        for name in NAMES:
            for _ in range(10):
                self.broker.produce(*name)
        self.warnings: list[LogEvent] = []
        self.source = self.broker.source(GROUP)
        self.assignments = Assignments(
            self.source, CommittedStartOffsets(self.source, on_no_offset, self.warn), self.warn
        )

    def warn(self, event: LogEvent, _text: str) -> None:
        self.warnings.append(event)

    def begins(self, found: Any) -> dict[int, int]:
        return {each.name.partition: each.next_offset for each in found}


def test_a_partition_without_a_leader_holds_up_no_other() -> None:
    scene = Scene()
    leaderless = scene.broker.topics.leaderless
    leaderless.add(NAMES[1])
    assert scene.begins(scene.assignments.resolve(NAMES, 0.0)) == {0: 0, 2: 0}
    assert scene.assignments.retry(RETRY_S) == []
    assert scene.warnings == [LogEvent.PARTITION_POSTPONED]
    leaderless.clear()
    assert scene.begins(scene.assignments.retry(2 * RETRY_S)) == {1: 0}
    assert scene.assignments.retry(3 * RETRY_S) == []


def test_a_topic_that_is_gone_holds_up_no_other() -> None:
    scene = Scene()
    gone = TopicPartition("gone", 0)
    assert scene.begins(scene.assignments.resolve([gone, *NAMES], 0.0)) == {0: 0, 1: 0, 2: 0}
    assert scene.warnings == [LogEvent.PARTITION_POSTPONED]


def test_what_is_given_up_while_it_waits_does_not_begin() -> None:
    scene = Scene()
    scene.broker.topics.leaderless.add(NAMES[1])
    scene.assignments.resolve(NAMES, 0.0)
    scene.assignments.remove([NAMES[1]])
    scene.broker.topics.leaderless.clear()
    assert scene.assignments.retry(RETRY_S) == []


def test_the_rule_holds_where_another_client_has_committed_some_partitions() -> None:
    scene = Scene("latest")
    scene.broker.move_offset(GROUP, Commit(NAMES[0], 4, "not ours"))
    assert scene.begins(scene.assignments.resolve(NAMES, 0.0)) == {0: 4, 1: 10, 2: 10}


def test_it_fails_where_another_client_has_committed_only_some_partitions() -> None:
    scene = Scene("fail")
    scene.broker.move_offset(GROUP, Commit(NAMES[0], 4, ""))
    with pytest.raises(NoOffsetError):
        scene.assignments.resolve(NAMES, 0.0)


def test_every_partition_waits_while_the_cluster_does_not_answer() -> None:
    scene = Scene()
    Reader(scene.source).join("orders")
    scene.broker.topics.answering = False
    assert scene.assignments.resolve(NAMES, 0.0) == []
    scene.broker.topics.answering = True
    assert scene.begins(scene.assignments.retry(RETRY_S)) == {0: 0, 1: 0, 2: 0}
