"""Where the partitions of a broadcast worker begin, and when it has caught up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import Note
from window_consumer.engine.commits.broadcast import HandledPosition
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.protocols import Batch
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.partitions.assignments import RETRY_S, Assignments
from window_consumer.runtime.partitions.broadcast_offsets import (
    BroadcastBegin,
    BroadcastOffsets,
    CatchUp,
)
from window_consumer.testing.clock import ManualClock
from window_consumer.testing.fakes.broker import FakeBroker

NAMES = [TopicPartition("prices", partition) for partition in range(2)]


class Scene:
    """A reader of all partitions, each with ten records, and its Engine."""

    def __init__(self, begin: BroadcastBegin = "earliest"):
        self.broker = FakeBroker()
        self.broker.create_topic("prices", len(NAMES))
        for name in NAMES:
            for _ in range(10):
                self.broker.produce(*name)
        self.handled: dict[TopicPartition, HandledPosition] = {}
        self.catch_up = CatchUp()
        source = self.broker.source_of_all()
        offsets = BroadcastOffsets(source, begin, self.handled, self.catch_up, ManualClock())
        self.assignments = Assignments(source, offsets, lambda _event, _text: None)
        self.engine = Driven.make(EngineRules(slots=2, delivery=DeliveryMode.BROADCAST))

    @property
    def topic_id(self) -> str | None:
        return self.broker.topics.by_name["prices"].topic_id

    def assign(self, *names: TopicPartition) -> dict[int, int]:
        return self.take(self.assignments.resolve(names or NAMES, 0.0))

    def take(self, assigned: Any) -> dict[int, int]:
        self.engine.on_assigned(assigned, 0.0)
        return {each.name.partition: each.next_offset for each in assigned}

    def handle(self, name: TopicPartition, offsets: range) -> None:
        self.take_in(name, offsets)
        while dispatched := self.engine.on_tick(0.0, 0.0).dispatch:
            for slice_ in dispatched:
                self.complete(slice_)

    def take_in(self, name: TopicPartition, offsets: range) -> None:
        notes = list(map(Note, offsets))
        for note in notes:
            note.belong_to(name)
        self.engine.on_records(Batch.of(name, notes), 0.0, 0.0)  # type: ignore[arg-type] # fields

    def complete(self, slice_: Slice) -> None:
        slice_.started = 0.001
        list(slice_.unclaimed)
        self.engine.on_completion(slice_, 0.0)

    def is_caught_up(self) -> bool:
        self.catch_up.advance(self.engine)
        return self.catch_up.is_done


@pytest.mark.parametrize(("begin", "expected"), [("earliest", 0), ("latest", 10)])
def test_the_first_partitions_begin_by_the_rule_and_later_ones_at_the_beginning(
    begin: BroadcastBegin, expected: int
) -> None:
    scene = Scene(begin)
    assert scene.assign(NAMES[0]) == {0: expected}
    assert scene.assign(NAMES[1]) == {1: 0}


def test_a_partition_that_has_to_wait_begins_by_the_rule_all_the_same() -> None:
    scene = Scene("latest")
    scene.broker.topics.leaderless.add(NAMES[1])
    assert scene.assign() == {0: 10}
    scene.broker.topics.leaderless.clear()
    assert scene.take(scene.assignments.retry(RETRY_S)) == {1: 10}


def test_a_partition_that_comes_again_continues_where_it_was() -> None:
    scene = Scene()
    scene.handled[NAMES[0]] = HandledPosition(scene.topic_id, 4, (range(6, 8),))
    (assigned,) = scene.assignments.resolve(NAMES[:1], 0.0)
    assert (assigned.next_offset, assigned.finished) == (4, (range(6, 8),))


def test_in_a_recreated_topic_it_begins_at_the_first_record() -> None:
    scene = Scene("latest")
    scene.assign()
    scene.handled[NAMES[0]] = HandledPosition("another id", 4, ())
    assert scene.assign(NAMES[0]) == {0: 0}


def test_caught_up_means_handled_and_not_read() -> None:
    scene = Scene()
    assert not scene.is_caught_up()
    scene.assign()
    scene.handle(NAMES[0], range(10))
    assert not scene.is_caught_up()
    assert scene.catch_up.records == 10
    scene.handle(NAMES[1], range(9))
    assert not scene.is_caught_up()
    scene.handle(NAMES[1], range(9, 10))
    assert scene.is_caught_up()


def test_records_that_came_later_do_not_count() -> None:
    scene = Scene()
    scene.assign()
    for name in NAMES:
        scene.broker.produce(*name)
        scene.handle(name, range(10))
    assert scene.is_caught_up()
    scene.assign(NAMES[0])
    assert scene.catch_up.is_done


def test_the_position_counts_where_the_log_ends_with_markers() -> None:
    scene = Scene()
    scene.assign()
    scene.handle(NAMES[0], range(8))
    scene.handle(NAMES[1], range(10))
    assert not scene.is_caught_up()
    scene.engine.on_positions({NAMES[0]: 10})
    assert scene.is_caught_up()


def test_what_hangs_beyond_the_end_that_was_seen_does_not_count() -> None:
    scene = Scene()
    scene.assign()
    scene.handle(NAMES[1], range(10))
    scene.handle(NAMES[0], range(9))
    scene.take_in(NAMES[0], range(9, 12))
    first, *others = scene.engine.on_tick(0.0, 0.0).dispatch
    assert not scene.is_caught_up()
    assert scene.catch_up.records == 1
    scene.complete(first)
    assert others
    assert scene.is_caught_up()


def test_what_begins_at_the_end_is_caught_up_at_once() -> None:
    scene = Scene("latest")
    scene.assign()
    assert scene.is_caught_up()


def test_without_partitions_there_is_nothing_to_catch_up_with() -> None:
    scene = Scene()
    assert not scene.is_caught_up()
    scene.assignments.resolve([], 0.0)
    assert scene.is_caught_up()


def test_a_partition_without_an_answer_is_waited_for() -> None:
    scene = Scene()
    scene.broker.topics.leaderless.add(NAMES[1])
    scene.assign()
    scene.handle(NAMES[0], range(10))
    assert not scene.is_caught_up()


def test_a_partition_that_is_gone_is_not_waited_for() -> None:
    scene = Scene()
    scene.assign()
    scene.handle(NAMES[0], range(10))
    scene.assignments.remove(NAMES[1:])
    assert scene.is_caught_up()


def test_nothing_begins_while_the_cluster_is_silent() -> None:
    scene = Scene(60.0)
    scene.broker.topics.answering = False
    assert scene.assign() == {}
    scene.broker.topics.answering = True
    assert scene.take(scene.assignments.retry(RETRY_S)) == {0: 10, 1: 10}
