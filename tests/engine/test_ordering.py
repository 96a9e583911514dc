from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.engine.support import Note, notes
from window_consumer.engine.scheduling.key_ordering import ByKey
from window_consumer.engine.scheduling.lanes import Lane, LaneHold, Lanes
from window_consumer.engine.scheduling.ordering import ByPartition, Ordering, Unordered
from window_consumer.engine.scheduling.record_queue import RecordRun, RunQueue


def a_run(first: int, keys: Sequence[bytes | None]) -> RecordRun:
    offsets = range(first, first + len(keys))
    return RecordRun.of(notes(*offsets, keys=keys), offsets)


def taken(ordering: Ordering, count: int = 100) -> tuple[list[int], LaneHold]:
    found = ordering.take(count)
    assert found is not None
    run, hold = found
    return list(run.seqs), hold


def test_unordered_records_leave_at_once_and_in_delivered_order() -> None:
    ordering = Unordered(Lanes())
    ordering.add(a_run(0, [b"a"] * 3))
    ordering.add(a_run(3, [b"a"] * 2))
    assert taken(ordering, 4)[0] == [0, 1, 2]
    assert taken(ordering, 4)[0] == [3, 4]
    assert ordering.take(4) is None


def test_one_slice_of_a_partition_at_a_time() -> None:
    ordering = ByPartition(Lanes())
    ordering.add(a_run(0, [b"a"] * 5))
    _, hold = taken(ordering, 2)
    assert (ordering.take(2), ordering.startable) == (None, 0)
    hold.release()
    assert taken(ordering, 2)[0] == [2, 3]


def test_a_record_waits_while_another_of_its_key_is_out() -> None:
    ordering = ByKey(Lanes())
    ordering.add(a_run(0, [b"a", b"b"]))
    _, hold = taken(ordering)
    ordering.add(a_run(2, [b"a", b"c"]))
    assert taken(ordering)[0] == [3]
    assert ordering.take(10) is None
    hold.release()
    assert taken(ordering)[0] == [2]


def test_records_of_one_key_may_follow_each_other_in_one_slice() -> None:
    ordering = ByKey(Lanes())
    ordering.add(a_run(0, [b"a", b"a", b"b", b"a"]))
    assert taken(ordering)[0] == [0, 1, 2, 3]


def test_records_without_a_key_wait_for_nobody() -> None:
    ordering = ByKey(Lanes())
    ordering.add(a_run(0, [None, None]))
    taken(ordering, 1)
    assert taken(ordering, 1)[0] == [1]


def test_a_new_record_does_not_pass_those_that_wait_in_its_lane() -> None:
    ordering = ByKey(Lanes())
    ordering.add(a_run(0, [b"a"]))
    _, hold = taken(ordering)
    ordering.add(a_run(1, [b"a"]))
    assert ordering.take(10) is None
    hold.release()
    ordering.add(a_run(2, [b"a"]))
    assert taken(ordering, 1)[0] == [1]
    assert ordering.take(10) is None


def test_a_lane_that_is_on_its_way_stays_busy_at_a_release() -> None:
    ordering = ByKey(Lanes())
    ordering.add(a_run(0, [b"a", b"b"]))
    _, hold = taken(ordering)
    hold.keep({b"a"})
    ordering.add(a_run(2, [b"a", b"b"]))
    assert taken(ordering)[0] == [3]


@pytest.mark.parametrize("release_first", [True, False])
def test_records_put_back_come_before_later_ones_of_their_lane(*, release_first: bool) -> None:
    ordering = ByKey(Lanes())
    ordering.add(a_run(0, [b"a", b"b", b"a"]))
    found = ordering.take(10)
    assert found is not None
    run, hold = found
    ordering.add(a_run(3, [b"a", b"b"]))
    assert ordering.take(10) is None
    if release_first:
        hold.release()
    ordering.put_back(run.messages[1:], run.seqs[1:])
    if not release_first:
        hold.release()
    by_key: dict[bytes, list[int]] = {b"a": [], b"b": []}
    while (found := ordering.take(1)) is not None:
        run, hold = found
        for message, seq in zip(run.messages, run.seqs, strict=True):
            by_key[message.key()].append(seq)
        hold.release()
    assert by_key == {b"a": [2, 3], b"b": [1, 4]}


def test_what_is_startable_is_known_without_asking_the_lanes() -> None:
    ordering = ByKey(Lanes())
    ordering.add(a_run(0, [b"a"] * 3))
    _, hold = taken(ordering, 1)
    assert ordering.take(1) is None
    assert ordering.startable == 0
    hold.release()
    assert ordering.startable == 2


def test_clearing_forgets_records_and_what_is_out_keeps_its_lanes() -> None:
    ordering = ByKey(Lanes())
    ordering.add(a_run(0, [b"a", b"b"]))
    _, hold = taken(ordering, 1)
    ordering.clear()
    assert ordering.take(10) is None
    ordering.add(a_run(5, [b"a", b"b"]))
    assert taken(ordering)[0] == [6]
    hold.release()
    assert taken(ordering)[0] == [5]


@given(st.lists(st.integers(1, 7), max_size=20), st.lists(st.integers(1, 9), max_size=40))
def test_a_queue_gives_back_every_record_once_and_in_order(
    added: list[int], wanted: list[int]
) -> None:
    queue = RunQueue()
    total = 0
    for count in added:
        queue.append(a_run(total, [None] * count))
        total += count
    out: list[int] = []
    for index, count in enumerate(wanted):
        run = queue.take(count)
        if run is None:
            break
        assert 0 < len(run) <= count
        assert [m.offset() for m in run.messages] == list(run.seqs)
        assert run.bytes == 10 * len(run)
        if index % 5 == 4:
            queue.put_in_front(run)
        else:
            out.extend(run.seqs)
    assert queue.records == total - len(out)
    while (run := queue.take(3)) is not None:
        out.extend(run.seqs)
    assert out == list(range(total))


class LanesMachine(RuleBasedStateMachine):
    """Whatever happens, a lane's records leave in order and never two at once in two slices."""

    make: Callable[[Lanes], Ordering] = ByKey

    def __init__(self) -> None:
        super().__init__()
        self.ordering = type(self).make(Lanes())
        self.next_seq = 0
        self.out: list[tuple[list[Any], list[int], LaneHold]] = []
        self.left: dict[Lane, int] = {}
        self.delivered = 0
        self.done = 0

    def lane(self, message: Any) -> Lane | None:
        lane_of = self.ordering.lane_of
        return None if lane_of is None else lane_of(message)

    @rule(keys=st.lists(st.sampled_from([None, b"a", b"b", b"c"]), min_size=1, max_size=6))
    def deliver(self, keys: list[bytes | None]) -> None:
        self.ordering.add(a_run(self.next_seq, keys))
        self.next_seq += len(keys)
        self.delivered += len(keys)

    @rule(count=st.integers(1, 6))
    def take(self, count: int) -> None:
        found = self.ordering.take(count)
        if found is None:
            return
        run, hold = found
        assert 0 < len(run) <= count
        busy = {self.lane(m) for messages, _, _ in self.out for m in messages} - {None}
        for message, seq in zip(run.messages, run.seqs, strict=True):
            lane = self.lane(message)
            if lane is not None:
                assert lane not in busy
                assert self.left.get(lane, -1) < seq
                self.left[lane] = seq
        self.out.append((list(run.messages), list(run.seqs), hold))

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        messages, _, hold = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self.done += len(messages)
        hold.release()

    @precondition(lambda self: any(len(messages) > 1 for messages, _, _ in self.out))
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        long = [index for index, (messages, _, _) in enumerate(self.out) if len(messages) > 1]
        index = data.draw(st.sampled_from(long))
        messages, seqs, hold = self.out[index]
        kept = data.draw(st.integers(1, len(messages) - 1))
        for message, seq in zip(messages[kept:], seqs[kept:], strict=True):
            lane = self.lane(message)
            if lane is not None:
                self.left[lane] = min(self.left[lane], seq - 1)
        self.ordering.put_back(messages[kept:], seqs[kept:])
        running = self.lane(messages[kept - 1])
        self.done += kept - 1
        hold.keep({running})
        self.out[index] = (messages[kept - 1 : kept], seqs[kept - 1 : kept], hold)

    @invariant()
    def nothing_is_startable_only_where_nothing_may_start(self) -> None:
        out = sum(len(messages) for messages, _, _ in self.out)
        waiting = self.delivered - self.done - out
        assert self.ordering.startable <= waiting

    def teardown(self) -> None:
        while self.out or self.ordering.startable:
            for messages, _, hold in self.out:
                self.done += len(messages)
                hold.release()
            self.out = []
            self.take(100)
        assert self.done == self.delivered


class UnorderedMachine(LanesMachine):
    make = Unordered


class ByPartitionMachine(LanesMachine):
    make = ByPartition


TestByKey = LanesMachine.TestCase
TestUnordered = UnorderedMachine.TestCase
TestByPartition = ByPartitionMachine.TestCase


def test_a_note_has_the_size_of_its_value() -> None:
    assert len(Note(0, size=17)) == 17
