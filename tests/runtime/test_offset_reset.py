"""Resets of the read position, while the poll thread must not wait long for the cluster."""

from __future__ import annotations

import logging

import pytest

from tests.engine.driver import Driven
from window_consumer.engine.decisions import Assigned, EngineRules
from window_consumer.model.protocols import TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.partitions.assignments import RETRY_S, Assignments
from window_consumer.runtime.partitions.offset_reset import OffsetResets
from window_consumer.runtime.partitions.start_offsets import LOGS_S, CommittedStartOffsets
from window_consumer.runtime.worker_log import WorkerLog
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.source import FakeSource

GROUP = "shop"
NAME = TopicPartition("orders", 0)


class TimedSource(FakeSource):
    """A Source that records for how long it may wait for a log's range."""

    def __init__(self, broker: FakeBroker):
        super().__init__(broker.topics, broker.group(GROUP))
        self.waits_s: list[float] = []
        self.sought: list[tuple[TopicPartition, int]] = []

    def log_range(self, name: TopicPartition, timeout_s: float) -> tuple[int, int]:
        self.waits_s.append(timeout_s)
        return super().log_range(name, timeout_s)

    def seek(self, name: TopicPartition, offset: int) -> None:
        self.sought.append((name, offset))


class Scene:
    """A member that reads a partition without a leader."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.broker.create_topic("orders", 1)
        for _ in range(10):
            self.broker.produce(*NAME)
        self.broker.topics.leaderless.add(NAME)
        self.source = TimedSource(self.broker)
        self.engine = Driven.make(EngineRules(slots=1))
        self.engine.on_assigned([Assigned(NAME, 3, committed=(3, ""))], 0.0)
        reports = WorkerLog("charge", logging.getLogger("tests.offset_reset"), lambda: 0.0)
        self.assignments = Assignments(
            self.source, CommittedStartOffsets(self.source, "earliest", reports.warn), reports.warn
        )
        self.resets = OffsetResets(self.source, self.engine, self.assignments, "earliest", reports)


@pytest.mark.parametrize("is_recreated", [True, False])
def test_a_reset_waits_briefly_for_a_log_and_is_tried_again(*, is_recreated: bool) -> None:
    scene = Scene()
    if is_recreated:
        scene.assignments.topic_ids[NAME] = "an earlier id"
        scene.resets.reset_recreated({"orders": TopicFacts(1, "a new id")}, 0.0)
    else:
        scene.resets.out_of_range(NAME, 0.0)
    assert scene.source.sought == []
    scene.broker.topics.leaderless.clear()
    scene.resets.retry(RETRY_S)
    assert scene.source.sought == [(NAME, 0 if is_recreated else 3)]
    assert len(scene.source.waits_s) >= 2
    assert max(scene.source.waits_s) <= LOGS_S
