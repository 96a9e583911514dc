"""The lanes in the ladder, and the rule: only the first outstanding record of a lane may start."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from window_consumer.model.record import TopicPartition
from window_consumer.parking.index import LadderIndex, ParkLimits, Place, SourceTurn

LANES = st.sampled_from([b"a", b"b", b"c"])
OFFSETS = st.integers(0, 30)


HOME = TopicPartition("orders", 0)
PARK = TopicPartition("g.orders.park", 0)
LEVEL = TopicPartition("g.orders.retry.1m", 0)


def index(*entered: tuple[bytes, int], **limits: int) -> LadderIndex:
    made = LadderIndex(ParkLimits(**limits))
    for each in entered:
        made.enter(*each, 0.0)
    return made


def turn(found: LadderIndex, lane: bytes | None, offset: int) -> SourceTurn:
    return found.at_turn(lane, offset, (HOME, offset), 0.0)


def test_a_record_whose_lane_is_not_in_the_ladder_is_called() -> None:
    found = index((b"a", 3))
    assert turn(found, b"b", 4) is SourceTurn.CALL
    assert turn(found, None, 5) is SourceTurn.CALL


def test_a_successor_of_a_lane_in_the_ladder_is_parked_and_starts_when_the_head_has_ended() -> None:
    found = index((b"a", 3))
    assert turn(found, b"a", 5) is SourceTurn.PARK
    found.enter(b"a", 5, 0.0)
    found.deliver(b"a", 3, (PARK, 0), 0.0)
    found.deliver(b"a", 5, (PARK, 1), 0.0)
    assert found.records == 2
    assert (found.may_start(b"a", 3), found.may_start(b"a", 5)) == (True, False)
    assert found.end(b"a", 3, (PARK, 0)) == ((PARK, 1),)
    assert found.may_start(b"a", 5)
    assert found.end(b"a", 5, (PARK, 1)) == ()
    assert (b"a" in found, found.records, found.has_places) == (False, 0, False)


def test_a_record_that_has_a_copy_already_is_finished() -> None:
    assert turn(index((b"a", 3), (b"a", 5)), b"a", 5) is SourceTurn.FINISH


def test_a_record_of_the_source_before_the_first_in_the_ladder_is_called() -> None:
    found = index((b"a", 5), max_records=1)
    assert turn(found, b"a", 3) is SourceTurn.CALL, "it is read once more"


def test_a_record_that_ends_out_of_turn_starts_nothing_new() -> None:
    found = index((b"a", 3), (b"a", 5), (b"a", 7))
    assert found.remove(b"a", 5) == ()
    assert found.remove(b"a", 5) == ()
    found.deliver(b"a", 7, (PARK, 2), 0.0)
    assert found.remove(b"a", 3) == ((PARK, 2),)


def test_a_record_with_two_copies_has_ended_with_the_last_one() -> None:
    found = index((b"a", 3), (b"a", 5))
    for place in ((PARK, 0), (PARK, 1)):
        found.deliver(b"a", 3, place, 0.0)
    assert found.records == 3, "one of them was unknown"
    found.deliver(b"a", 5, (PARK, 2), 0.0)
    assert found.end(b"a", 3, (PARK, 0)) == ((PARK, 1),)
    assert not found.may_start(b"a", 5)
    assert found.end(b"a", 3, (PARK, 1)) == ((PARK, 2),)


def test_the_other_copy_of_a_head_that_has_ended_in_a_level_is_unread() -> None:
    found = index((b"a", 3), (b"a", 3), (b"a", 5))
    found.climb(b"a", 3)
    assert not found.has_unread_head, "the one in the level comes when it is due"
    found.deliver(b"a", 3, (LEVEL, 0), 0.0)
    found.end(b"a", 3, (LEVEL, 0), is_copy=True)
    assert found.has_unread_head


def test_a_copy_that_moves_on_is_the_same_record() -> None:
    found = index((b"a", 3))
    level, next_level = (HOME, 0), (PARK, 9)
    found.deliver(b"a", 3, level, 0.0)
    assert found.move(b"a", 3, level)
    found.deliver(b"a", 3, next_level, 0.0)
    assert found.records == 1


def test_the_records_of_a_released_partition_remain_outstanding() -> None:
    found = index((b"a", 3))
    found.deliver(b"a", 3, (PARK, 0), 0.0)
    found.remove_partition(PARK)
    assert (found.has_places, found.records) == (False, 1)
    found.deliver(b"a", 3, (PARK, 0), 0.0)
    assert found.records == 1


@pytest.mark.parametrize("limits", [{"max_keys": 2}, {"max_records": 3}])
def test_there_is_room_until_a_limit_is_reached(limits: dict[str, int]) -> None:
    found = index((b"a", 1), (b"a", 2), **limits)
    room = [found.has_room]
    found.enter(b"b", 3, 0.0)
    room.append(found.has_room)
    found.remove(b"b", 3)
    assert [*room, found.has_room] == [True, False, True]


def test_a_successor_without_room_waits_in_the_source_until_it_is_first() -> None:
    found = index((b"a", 1), max_records=1)
    assert turn(found, b"a", 2) is turn(found, b"a", 2) is SourceTurn.HOLD
    assert found.records == 2
    assert found.remove(b"a", 1) == ((HOME, 2),)
    assert turn(found, b"a", 2) is SourceTurn.CALL
    assert found.end(b"a", 2, (HOME, 2)) == ()
    assert not found


class IndexMachine(RuleBasedStateMachine):
    """The index against lists of offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.index = index()
        self.lists: defaultdict[bytes, list[int]] = defaultdict(list)
        self.delivered: set[tuple[bytes, int, Place]] = set()

    @rule(lane=LANES, offset=OFFSETS)
    def enter(self, lane: bytes, offset: int) -> None:
        self.index.enter(lane, offset, 0.0)
        self.lists[lane].append(offset)

    @rule(lane=LANES, offset=OFFSETS, at=st.integers(0, 3))
    def deliver(self, lane: bytes, offset: int, at: int) -> None:
        self.index.deliver(lane, offset, (PARK, at), 0.0)
        self.delivered.add((lane, offset, (PARK, at)))
        places = self._places(lane, offset)
        if len(places) > self.lists[lane].count(offset):
            self.lists[lane].append(offset)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.delivered:
            record = data.draw(st.sampled_from(sorted(self.delivered)))
            self.delivered.remove(record)
            lane, offset, _ = record
            self.lists[lane].remove(offset)
            found = self.index.end(*record)
            mine = self.lists[lane]
            assert set(found) == (self._places(lane, min(mine)) if mine else set())

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        if self.delivered:
            record = data.draw(st.sampled_from(sorted(self.delivered)))
            self.delivered.remove(record)
            assert self.index.move(*record)
            assert not self.index.move(*record)

    @rule(lane=LANES, offset=OFFSETS)
    def ask(self, lane: bytes, offset: int) -> None:
        mine = self.lists[lane]
        behind = SourceTurn.FINISH if offset in mine else SourceTurn.PARK
        found = behind if mine and offset >= min(mine) else SourceTurn.CALL
        assert turn(self.index, lane, offset) is found
        assert self.index.may_start(lane, offset) == (not mine or offset <= min(mine))

    @invariant()
    def holds_the_same(self) -> None:
        mine = {lane: offsets for lane, offsets in self.lists.items() if offsets}
        found = {each.lane: (each.head, each.followers) for each in self.index.parked()}
        assert found == {lane: (min(each), len(each) - 1) for lane, each in mine.items()}
        assert (len(self.index), self.index.records) == (len(mine), sum(map(len, mine.values())))
        assert self.index.has_places == bool(self.delivered)

    def _places(self, lane: bytes, offset: int) -> set[Place]:
        return {place for *record, place in self.delivered if record == [lane, offset]}


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(deadline=None)


class Group:
    """A group in small: a source, a ladder, one member after another. Kills lose only memory."""

    def __init__(self, lanes: list[bytes]):
        self.source = lanes
        self.committed: set[int] = set()
        """Finished offsets of the source, as the broker knows them."""
        self.ladder: dict[int, bool] = {}
        """Copies by original offset, and whether the group has finished them."""
        self.handled: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Start a member: it scans the ladder before anything of the source."""
        self.index = index()
        open_ = [at for at, is_finished in self.ladder.items() if not is_finished]
        for at in open_:
            self.index.enter(self.source[at], at, 0.0)

    def deliver(self, offset: int, *, fails: bool, kill: bool) -> None:
        """Let a record of the source have its turn; a kill comes after the ack of its copy."""
        lane = self.source[offset]
        found = turn(self.index, lane, offset)
        if found is SourceTurn.CALL and not fails:
            self.handled.append(offset)
        elif found is not SourceTurn.FINISH:
            self.ladder[offset] = False
            if kill:
                self.begin()
                return
            self.index.enter(lane, offset, 0.0)
        self.committed.add(offset)

    def call(self, offset: int, *, kill: bool) -> None:
        """Call a copy if it may start; a kill comes between its outcome and the commit."""
        lane = self.source[offset]
        if self.ladder[offset] or not self.index.may_start(lane, offset):
            return
        self.handled.append(offset)
        if kill:
            self.begin()
            return
        self.ladder[offset] = True
        self.index.remove(lane, offset)


@given(st.data())
@settings(deadline=None)
def test_the_first_calls_of_a_lane_keep_their_order_through_kills(data: st.DataObject) -> None:
    lanes = data.draw(st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=8))
    group = Group(lanes)
    for _ in range(200):
        left = [at for at in range(len(lanes)) if at not in group.committed]
        # The window delivers the records of a lane in order.
        firsts = [at for at in left if lanes[at] not in lanes[left[0] : at] or at == left[0]]
        copies = [at for at, is_finished in group.ladder.items() if not is_finished]
        if not (left or copies):
            break
        kill = data.draw(st.integers(0, 9)) == 0
        if firsts and (not copies or data.draw(st.booleans())):
            fails = data.draw(st.booleans())
            group.deliver(data.draw(st.sampled_from(firsts)), fails=fails, kill=kill)
        else:
            group.call(data.draw(st.sampled_from(copies)), kill=kill)
    for lane in set(lanes):
        firsts = [at for at in dict.fromkeys(group.handled) if lanes[at] == lane]
        assert firsts == sorted(firsts)
    assert set(group.handled) == set(range(len(lanes)))
