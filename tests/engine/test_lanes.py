"""Who holds a lane, and who enters it next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.engine.support import notes
from window_consumer.engine.scheduling.key_ordering import ByKey
from window_consumer.engine.scheduling.lanes import NO_HOLD, LaneHold, Lanes
from window_consumer.engine.scheduling.ordering import ByPartition, Ordering, Taken, Unordered
from window_consumer.engine.scheduling.record_queue import RecordRun

A, B, C = b"a", b"b", b"c"


def run_of(first: int, *keys: bytes | None) -> RecordRun:
    offsets = range(first, first + len(keys))
    return RecordRun.of(notes(*offsets, keys=keys), offsets)


def taken(ordering: Ordering, count: int = 100) -> Taken:
    found = ordering.take(count)
    assert found is not None
    return found


def siblings(number: int = 2) -> list[ByKey]:
    lanes = Lanes()
    return [ByKey(lanes) for _ in range(number)]


def test_a_lane_is_free_when_the_last_of_its_holds_is_released() -> None:
    (ordering,) = siblings(1)
    ordering.add(run_of(0, A, A))
    _, of_slice = taken(ordering, 1)
    of_failed, of_another = ordering.acquire([A]), ordering.acquire([A])
    for hold in (of_slice, of_failed):
        hold.release()
        assert ordering.take(1) is None
    of_another.release()
    assert list(taken(ordering)[0].seqs) == [1]


def test_releasing_a_hold_again_changes_nothing() -> None:
    (ordering,) = siblings(1)
    first, second = ordering.acquire([A]), ordering.acquire([A])
    first.release()
    first.release()
    assert ordering.lanes.busy == {A}
    second.release()
    assert not ordering.lanes.busy


def test_a_hold_counts_once_for_a_lane_that_several_of_its_records_have() -> None:
    (ordering,) = siblings(1)
    ordering.add(run_of(0, A, A, B))
    _, hold = taken(ordering)
    hold.release()
    assert not ordering.lanes.busy


def test_what_a_hold_keeps_stays_busy_and_the_others_are_free() -> None:
    (ordering,) = siblings(1)
    hold = ordering.acquire([A, B, C])
    hold.keep({B, None})
    assert ordering.lanes.busy == {B}
    hold.release()
    assert not ordering.lanes.busy


def test_lanes_that_are_parted_off_are_released_on_their_own() -> None:
    (ordering,) = siblings(1)
    hold = ordering.acquire([A, B])
    parted = hold.part([B, C, None])
    hold.release()
    assert ordering.lanes.busy == {B}
    parted.release()
    assert not ordering.lanes.busy


def test_a_hold_that_was_merged_holds_nothing_and_its_lanes_stay_busy() -> None:
    (ordering,) = siblings(1)
    hold, other = ordering.acquire([A, B]), ordering.acquire([B, C])
    hold.merge(other)
    other.release()
    assert ordering.lanes.busy == {A, B, C}
    hold.release()
    assert not ordering.lanes.busy


def test_no_lane_is_held_for_records_without_a_key() -> None:
    (ordering,) = siblings(1)
    ordering.add(run_of(0, None, None))
    taken(ordering, 1)
    assert ordering.acquire([None]) is NO_HOLD
    assert not ordering.lanes.busy
    assert list(taken(ordering)[0].seqs) == [1]


@pytest.mark.parametrize("ordering", [Unordered, ByKey, ByPartition])
def test_an_ordering_that_leaves_releases_all_of_its_holds(ordering: type[Ordering]) -> None:
    lanes = Lanes()
    leaving, staying = ordering(lanes), ordering(lanes)
    leaving.add(run_of(0, A, B))
    _, hold = taken(leaving, 1)
    leaving.acquire([A])
    leaving.leave()
    staying.add(run_of(0, A))
    later, of_sibling = taken(staying)
    hold.release()
    assert list(later.seqs) == [0]
    assert lanes.busy == set(of_sibling.lanes)


def test_a_lane_that_is_out_in_one_partition_is_busy_for_its_siblings() -> None:
    one, other = siblings()
    one.add(run_of(0, A))
    other.add(run_of(0, A, B))
    _, hold = taken(one)
    run, _ = taken(other)
    assert list(run.seqs) == [1]
    hold.release()
    assert list(taken(other)[0].seqs) == [0]


def test_lines_of_siblings_take_turns() -> None:
    orderings = siblings(3)
    for ordering in orderings:
        ordering.add(run_of(0, A, A))
    turns = []
    _, hold = taken(orderings[0], 1)
    for ordering in orderings:
        assert ordering.take(100) is None
    for _ in range(3):
        hold.release()
        (index,) = [index for index, each in enumerate(orderings) if each.ready]
        turns.append(index)
        _, hold = taken(orderings[index], 1)
    assert turns == [1, 2, 0]


def test_a_lane_that_was_offered_to_who_is_cleared_goes_to_the_next() -> None:
    one, other = siblings()
    one.add(run_of(0, A))
    other.add(run_of(0, A))
    hold = one.acquire([A])
    assert one.take(1) is None
    assert other.take(1) is None
    hold.release()
    assert (one.startable, other.startable) == (0, 1)
    other.clear()
    assert list(taken(one)[0].seqs) == [0]


def test_a_lane_that_was_offered_waits_again_when_somebody_holds_it() -> None:
    (ordering,) = siblings(1)
    ordering.add(run_of(0, A, A))
    _, hold = taken(ordering, 1)
    assert ordering.take(1) is None
    hold.release()
    assert ordering.startable == 1
    again = ordering.acquire([A])
    assert (ordering.startable, ordering.take(1)) == (0, None)
    again.release()
    assert list(taken(ordering)[0].seqs) == [1]


def test_records_that_join_a_batch_are_covered_by_its_hold() -> None:
    (ordering,) = siblings(1)
    ordering.add(run_of(0, A))
    _, hold = taken(ordering)
    ordering.add(run_of(1, A, B))
    more = ordering.take_more(10, hold)
    assert more is not None
    assert list(more.seqs) == [1, 2]
    hold.release()
    assert not ordering.lanes.busy


def test_a_record_does_not_join_a_batch_past_one_that_failed() -> None:
    (ordering,) = siblings(1)
    ordering.add(run_of(0, A))
    _, hold = taken(ordering)
    failed = ordering.acquire([A])
    ordering.add(run_of(1, A))
    assert ordering.take_more(10, hold) is None
    hold.release()
    failed.release()
    assert list(taken(ordering)[0].seqs) == [1]


class LanesModel(RuleBasedStateMachine):
    """Lanes do what a list of who holds what would do.

    The model keeps, for each hold, its ordering and its lanes. A lane may be entered if it is in
    none of them. Per ordering it keeps the records that wait, in their order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes()
        self.orderings = [ByKey(self.lanes) for _ in range(3)]
        self.holds: dict[LaneHold, tuple[ByKey, set[bytes]]] = {}
        self.waiting: dict[ByKey, list[tuple[int, Any]]] = {each: [] for each in self.orderings}
        self.out: dict[LaneHold, list[tuple[int, Any]]] = {}
        self.next_seq = 0

    def held(self) -> set[bytes]:
        return {lane for _, lanes in self.holds.values() for lane in lanes}

    def an_ordering(self, data: st.DataObject) -> ByKey:
        return data.draw(st.sampled_from(self.orderings))

    def a_hold(self, data: st.DataObject) -> LaneHold:
        return data.draw(st.sampled_from(list(self.holds)))

    some_keys = st.lists(st.sampled_from([None, A, B, C]), min_size=1, max_size=5)

    @precondition(lambda self: self.orderings)
    @rule(data=st.data(), keys=some_keys)
    def deliver(self, data: st.DataObject, keys: list[bytes | None]) -> None:
        ordering = self.an_ordering(data)
        run = run_of(self.next_seq, *keys)
        ordering.add(run)
        self.waiting[ordering] += zip(run.seqs, run.messages, strict=True)
        self.next_seq += len(keys)

    @precondition(lambda self: self.orderings)
    @rule(data=st.data(), count=st.integers(1, 5))
    def take(self, data: st.DataObject, count: int) -> None:
        ordering = self.an_ordering(data)
        held = self.held()
        found = ordering.take(count)
        if found is None:
            return
        run, hold = found
        self.check_left(ordering, run, held)
        keys = {message.key() for message in run.messages} - {None}
        self.holds[hold] = (ordering, keys)
        self.out[hold] = list(zip(run.seqs, run.messages, strict=True))

    @precondition(lambda self: self.out)
    @rule(data=st.data(), count=st.integers(1, 5))
    def take_more(self, data: st.DataObject, count: int) -> None:
        hold = data.draw(st.sampled_from(list(self.out)))
        ordering, lanes = self.holds[hold]
        others = [each for other, (_, each) in self.holds.items() if other is not hold]
        run = ordering.take_more(count, hold)
        if run is None:
            return
        self.check_left(ordering, run, set().union(*others))
        lanes |= {message.key() for message in run.messages} - {None}
        self.out[hold] += zip(run.seqs, run.messages, strict=True)

    def check_left(self, ordering: ByKey, run: RecordRun, held: set[bytes]) -> None:
        """Nobody holds the lanes of these records, and they are the first of them that wait."""
        waiting = self.waiting[ordering]
        for seq, message in zip(run.seqs, run.messages, strict=True):
            key = message.key()
            assert key not in held
            if key is not None:
                assert seq == next(each for each, other in waiting if other.key() == key)
            waiting.remove((seq, message))

    @precondition(lambda self: self.orderings)
    @rule(data=st.data(), keys=some_keys)
    def acquire(self, data: st.DataObject, keys: list[bytes | None]) -> None:
        ordering = self.an_ordering(data)
        hold = ordering.acquire(keys)
        if hold is not NO_HOLD:
            self.holds[hold] = (ordering, {key for key in keys if key is not None})

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        hold = self.a_hold(data)
        del self.holds[hold]
        self.out.pop(hold, None)
        hold.release()

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), keys=some_keys)
    def keep(self, data: st.DataObject, keys: list[bytes | None]) -> None:
        hold = self.a_hold(data)
        hold.keep(set(keys))
        self.holds[hold][1].intersection_update(keys)
        self.out.pop(hold, None)

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), keys=some_keys)
    def part(self, data: st.DataObject, keys: list[bytes | None]) -> None:
        hold = self.a_hold(data)
        ordering, lanes = self.holds[hold]
        self.holds[hold.part(keys)] = (ordering, lanes.intersection(keys))
        lanes.difference_update(keys)
        self.out.pop(hold, None)

    @precondition(lambda self: len(self.holds) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        hold, other = self.a_hold(data), self.a_hold(data)
        if hold is other or self.holds[hold][0] is not self.holds[other][0]:
            return
        hold.merge(other)
        self.holds[hold][1].update(self.holds.pop(other)[1])
        self.out.pop(hold, None)
        self.out.pop(other, None)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        hold = data.draw(st.sampled_from(list(self.out)))
        ordering = self.holds[hold][0]
        records = sorted(self.out.pop(hold))
        keys = {message.key() for _, message in records}
        if any(
            message.key() in keys for seq, message in self.waiting[ordering] if seq < records[0][0]
        ):
            return  # the order in which they are put back is for the caller to keep
        ordering.put_back([message for _, message in records], [seq for seq, _ in records])
        self.waiting[ordering] = records + self.waiting[ordering]

    @rule(data=st.data())
    def clear(self, data: st.DataObject) -> None:
        ordering = self.an_ordering(data)
        ordering.clear()
        self.waiting[ordering] = []

    @precondition(lambda self: len(self.orderings) > 1)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ordering = self.an_ordering(data)
        self.orderings.remove(ordering)
        ordering.leave()
        self.waiting[ordering] = []
        for hold in [hold for hold, (owner, _) in self.holds.items() if owner is ordering]:
            del self.holds[hold]
            self.out.pop(hold, None)

    @invariant()
    def held_lanes_are_busy_and_others_only_while_somebody_was_offered_them(self) -> None:
        offered = [lane for each in self.orderings for lane in each.ready]
        assert len(offered) == len(set(offered))
        assert self.held().isdisjoint(offered)
        assert self.lanes.busy == self.held() | set(offered)

    @invariant()
    def who_waits_for_a_lane_that_nobody_holds_is_offered_it(self) -> None:
        offered = {lane for each in self.orderings for lane in each.ready}
        for each in self.orderings:
            assert set(each.lines) <= self.held() | offered

    @invariant()
    def startable_counts_what_may_start_in_lines(self) -> None:
        for each in self.orderings:
            assert each.startable_in_lines == sum(len(each.lines[lane]) for lane in each.ready)

    def teardown(self) -> None:
        for hold in list(self.holds):
            hold.release()
        self.holds.clear()
        left = True
        while left:
            left = False
            for ordering in self.orderings:
                while (found := ordering.take(100)) is not None:
                    self.check_left(ordering, found[0], set())
                    found[1].release()
                    left = True
        assert not any(self.waiting.values())


TestLanes = LanesModel.TestCase
