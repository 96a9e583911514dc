"""The lanes in the ladder, and the rule: only the first outstanding record of a lane may start."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from window_consumer.parking.index import LadderIndex, ParkLimits, SourceTurn

LANES = st.sampled_from([b"a", b"b", b"c"])
OFFSETS = st.integers(0, 30)


def index(*entered: tuple[bytes, int], **limits: int) -> LadderIndex:
    made = LadderIndex(ParkLimits(**limits))
    made.scan(entered)
    return made


def test_a_record_whose_lane_is_not_in_the_ladder_is_called() -> None:
    found = index((b"a", 3))
    assert found.at_turn(b"b", 4) is SourceTurn.CALL
    assert found.at_turn(None, 5) is SourceTurn.CALL


def test_a_successor_of_a_lane_in_the_ladder_is_parked_and_starts_when_the_head_has_ended() -> None:
    found = index((b"a", 3))
    assert found.at_turn(b"a", 5) is SourceTurn.PARK
    found.enter(b"a", 5)
    assert (found.may_start(b"a", 3), found.may_start(b"a", 5)) == (True, False)
    assert found.end(b"a", 3) == 5
    assert found.may_start(b"a", 5)
    assert found.end(b"a", 5) is None
    assert (b"a" in found, found.records) == (False, 0)


def test_a_record_that_has_a_copy_already_is_finished() -> None:
    assert index((b"a", 3), (b"a", 5)).at_turn(b"a", 5) is SourceTurn.FINISH


def test_a_record_that_ends_out_of_turn_starts_nothing() -> None:
    found = index((b"a", 3), (b"a", 5), (b"a", 7))
    assert found.end(b"a", 5) is None
    assert found.end(b"a", 5) is None
    assert found.end(b"a", 3) == 7


@pytest.mark.parametrize("limits", [{"max_keys": 2}, {"max_records": 3}])
def test_there_is_room_until_a_limit_is_reached(limits: dict[str, int]) -> None:
    found = index((b"a", 1), (b"a", 2), **limits)
    room = [found.has_room]
    found.enter(b"b", 3)
    room.append(found.has_room)
    found.end(b"b", 3)
    assert [*room, found.has_room] == [True, False, True]


class IndexMachine(RuleBasedStateMachine):
    """The index against sets of offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.index = index()
        self.sets: defaultdict[bytes, set[int]] = defaultdict(set)

    @rule(lane=LANES, offset=OFFSETS)
    def enter(self, lane: bytes, offset: int) -> None:
        self.index.enter(lane, offset)
        self.sets[lane].add(offset)

    @rule(lane=LANES, offset=OFFSETS)
    def end(self, lane: bytes, offset: int) -> None:
        mine = self.sets[lane]
        was_first = offset in mine and offset == min(mine)
        mine.discard(offset)
        assert self.index.end(lane, offset) == (min(mine) if was_first and mine else None)

    @rule(lane=LANES)
    def end_head(self, lane: bytes) -> None:
        if self.sets[lane]:
            self.end(lane, min(self.sets[lane]))

    @rule(lane=LANES, offset=OFFSETS)
    def ask(self, lane: bytes, offset: int) -> None:
        mine = self.sets[lane]
        turn = SourceTurn.FINISH if offset in mine else SourceTurn.PARK if mine else SourceTurn.CALL
        assert self.index.at_turn(lane, offset) is turn
        assert self.index.may_start(lane, offset) == (not mine or offset <= min(mine))

    @invariant()
    def holds_the_same(self) -> None:
        mine = {lane: offsets for lane, offsets in self.sets.items() if offsets}
        found = {lane: (head, behind) for lane, head, behind in self.index.followers()}
        assert found == {lane: (min(each), len(each) - 1) for lane, each in mine.items()}
        assert (len(self.index), self.index.records) == (len(mine), sum(map(len, mine.values())))


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
        self.index.scan((self.source[at], at) for at in open_)

    def deliver(self, offset: int, *, fails: bool, kill: bool) -> None:
        """Let a record of the source have its turn; a kill comes after the ack of its copy."""
        lane = self.source[offset]
        turn = self.index.at_turn(lane, offset)
        if turn is SourceTurn.CALL and not fails:
            self.handled.append(offset)
        elif turn is not SourceTurn.FINISH:
            self.ladder[offset] = False
            if kill:
                self.begin()
                return
            self.index.enter(lane, offset)
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
        self.index.end(lane, offset)


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
