"""What must be ready before a partition starts."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tests.golden_texts import Golden
from window_consumer.model.log_events import LogEvent, Warn
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.partitions.assignments import Assignments
from window_consumer.runtime.partitions.preparation import AGAIN_S, SLOW_S, PartitionPreparation
from window_consumer.runtime.partitions.start_offsets import CommittedStartOffsets
from window_consumer.testing.fakes.broker import FakeBroker

GROUP = "shop"
NAMES = [TopicPartition("orders", partition) for partition in range(2)]


class HeldPreparation:
    """It is ready when the test says so."""

    subject = "the index"

    def __init__(self) -> None:
        self.begun: list[TopicPartition] = []
        self.futures: dict[TopicPartition, Future[None]] = {}

    def begin(self, name: TopicPartition) -> Future[None]:
        self.begun.append(name)
        self.futures[name] = Future()
        return self.futures[name]

    def remove(self, name: TopicPartition) -> None:
        """Nothing is kept."""


class DonePreparation:
    """Nothing is needed."""

    subject = "nothing"

    def begin(self, name: TopicPartition) -> Future[None]:
        del name
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def remove(self, name: TopicPartition) -> None:
        """Nothing is kept."""


def assignments_of(broker: FakeBroker, warn: Warn, *each: PartitionPreparation) -> Assignments:
    source = broker.source(GROUP)
    return Assignments(source, CommittedStartOffsets(source, "earliest", warn), warn, each)


class Scene:
    """Assignments of a member that has all partitions."""

    def __init__(self, *more: DonePreparation):
        self.broker = FakeBroker()
        self.broker.create_topic("orders", 2)
        for name in NAMES:
            for _ in range(10):
                self.broker.produce(*name)
        self.warnings: list[tuple[LogEvent, str]] = []
        self.index = HeldPreparation()
        self.assignments = assignments_of(
            self.broker, lambda event, text: self.warnings.append((event, text)), self.index, *more
        )

    def starts(self, now: float) -> dict[int, int]:
        found = self.assignments.retry(now)
        return {each.name.partition: each.next_offset for each in found}


@pytest.fixture
def scene() -> Scene:
    """Return a scene whose partitions have just been assigned."""
    scene = Scene(DonePreparation())
    assert scene.assignments.resolve(NAMES, 0.0) == []
    return scene


def test_a_partition_starts_when_everything_for_it_is_ready_and_no_other(scene: Scene) -> None:
    assert scene.starts(0.1) == {}
    scene.index.futures[NAMES[1]].set_result(None)
    assert scene.starts(0.2) == {1: 0}
    scene.index.futures[NAMES[0]].set_result(None)
    assert scene.starts(0.3) == {0: 0}
    assert (scene.starts(5.0), scene.index.begun, scene.warnings) == ({}, NAMES, [])


def test_a_further_assignment_starts_no_partition_of_an_earlier_one(scene: Scene) -> None:
    scene.index.futures[NAMES[0]].set_result(None)
    third = TopicPartition("orders", 2)
    assert scene.assignments.resolve([third], 0.1) == []
    assert scene.starts(0.2) == {0: 0}


def test_what_is_committed_is_read_after_that(scene: Scene) -> None:
    scene.broker.move_offset(GROUP, Commit(NAMES[0], 4, ""))
    scene.index.futures[NAMES[0]].set_result(None)
    assert scene.starts(0.1) == {0: 4}


def test_where_nothing_is_needed_a_partition_starts_at_once() -> None:
    scene = Scene()
    scene.assignments = assignments_of(
        scene.broker, lambda _event, text: pytest.fail(text), DonePreparation()
    )
    found = scene.assignments.resolve(NAMES, 0.0)
    assert [each.name for each in found] == NAMES


def test_a_partition_that_is_given_up_cancels_and_does_not_start(scene: Scene) -> None:
    future = scene.index.futures[NAMES[0]]
    scene.assignments.remove([NAMES[0]])
    assert future.cancelled()
    scene.index.futures[NAMES[1]].set_result(None)
    assert scene.starts(0.1) == {1: 0}
    assert scene.assignments.resolve([NAMES[0]], 1.0) == []
    assert scene.index.begun == [*NAMES, NAMES[0]]


def test_a_partition_that_returns_is_made_ready_again(scene: Scene) -> None:
    scene.index.futures[NAMES[0]].set_result(None)
    assert scene.starts(0.1) == {0: 0}
    scene.assignments.remove([NAMES[0]])
    assert scene.assignments.resolve([NAMES[0]], 1.0) == []


def test_a_failure_is_reported_once_and_tried_again(scene: Scene) -> None:
    scene.index.futures[NAMES[0]].set_exception(OSError("no answer"))
    assert scene.starts(1.0) == {}
    assert scene.index.begun == NAMES
    assert scene.starts(1.0 + AGAIN_S) == {}
    assert scene.index.begun == [*NAMES, NAMES[0]]
    scene.index.futures[NAMES[0]].set_exception(OSError("no answer"))
    scene.starts(2.0 + AGAIN_S)
    ((event, text),) = scene.warnings
    assert event is LogEvent.PARTITION_POSTPONED
    assert text.startswith("orders[0]: ")
    assert "the index: no answer" in text
    scene.starts(3.0 + 2 * AGAIN_S)
    scene.index.futures[NAMES[0]].set_result(None)
    assert scene.starts(4.0 + 2 * AGAIN_S) == {0: 0}


def test_a_failure_cancels_the_other_preparations_of_its_partition() -> None:
    scene, other = Scene(), HeldPreparation()
    scene.assignments = assignments_of(scene.broker, lambda _event, _text: None, scene.index, other)
    scene.assignments.resolve(NAMES, 0.0)
    scene.index.futures[NAMES[0]].set_exception(OSError("no answer"))
    scene.starts(0.1)
    assert [other.futures[name].cancelled() for name in NAMES] == [True, False]


def test_what_takes_long_is_named_once(scene: Scene, golden: Golden) -> None:
    scene.index.futures[NAMES[1]].set_result(None)
    scene.starts(SLOW_S + 1)
    scene.starts(SLOW_S + 2)
    ((event, text),) = scene.warnings
    assert event is LogEvent.PARTITION_POSTPONED
    golden(text)


def test_the_end_of_the_worker_cancels_everything(scene: Scene) -> None:
    scene.assignments.cancel()
    assert all(future.cancelled() for future in scene.index.futures.values())
    assert scene.starts(5.0) == {}
