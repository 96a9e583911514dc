"""Parking in an Engine: a key that fails keeps its order, and the others of its partition go on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tests.engine.laddered import ENTRY, RETRIED, Laddered
from tests.engine.support import ORDERS, Note
from window_consumer.engine.guards.interventions import Intervention
from window_consumer.engine.partition import Partition
from window_consumer.engine.turn import CopyTo, Finish, Turn, TurnRule
from window_consumer.model.errors import Fatal, PublishFailedError
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message, TopicPartition
from window_consumer.parking.index import LadderIndex, ParkLimits
from window_consumer.parking.rules import Parking, ParkingFigures
from window_consumer.parking.scans import OWN_S, LadderContents, LadderCopy, LadderScans

PARK = ENTRY
"""The park topic is, like the entry topic, one of the ladder without a level."""


NO_LIMITS = ParkLimits()

WAIT_S = 20.0


def park(partition: Partition, message: Message) -> CopyTo:
    del partition
    copy = Copy(PARK.topic, 0, message.key(), message.value(), [])
    return CopyTo(copy, Reason.PARKED, Outcome.PARKED)


class OneLadder:
    """The ladder of one source partition, which a test fills by hand."""

    def __init__(self) -> None:
        self.contents: dict[TopicPartition, list[LadderCopy]] = {}
        self.failures: list[Exception] = []
        self.reads = 0

    def home_of(self, name: TopicPartition) -> TopicPartition | None:
        return ORDERS if name in {ORDERS, RETRIED, PARK} else None

    def ladder_of(self, home: TopicPartition) -> Collection[TopicPartition]:
        return [RETRIED, PARK] if home == ORDERS else []

    def is_level(self, name: TopicPartition) -> bool:
        return name == RETRIED

    def read(self, partitions: Collection[TopicPartition]) -> LadderContents:
        self.reads += bool(partitions)
        if self.failures:
            raise self.failures.pop()
        return {name: self.contents[name] for name in partitions if name in self.contents}


class Parked(Laddered):
    """An Engine that parks; what is copied is delivered by hand."""

    def __init__(
        self,
        limits: ParkLimits = NO_LIMITS,
        *,
        assigns: bool = True,
        follows: bool = False,
        scans_alone: bool = True,
        **rules: Any,
    ) -> None:
        super().__init__(owned=(), ordering="key", **rules)
        self.ladder = OneLadder()
        self.scans = (
            LadderScans(self.ladder) if scans_alone else LadderScans(self.ladder, lambda _run: None)
        )
        self.parking = Parking(limits, park, self.scans, follows=follows)
        self.engine.decide_turns([self.parking])
        if assigns:
            self.assign(ORDERS, RETRIED, PARK)

    def copy_of(self, offset: int, original: int) -> Note:
        """Return a copy of a record of the source that is due."""
        return self.copy(offset, 0.0, original=original)

    def fail_head(self) -> None:
        """Let the record 0 fail and go to its level."""
        self.deliver(Note(0, b"k"))
        self.tick()
        self.fail(self.out[0], 0)
        self.copied(self.published_one())

    def kill_head(self, offset: int = 0) -> None:
        """Let the copy of the record 0 fail for good in its level."""
        self.deliver(self.copy_of(offset, 0), name=RETRIED)
        self.tick()
        (slice_,) = self.out
        assert slice_.partition.name == RETRIED
        self.fail(slice_, 0, error=Fatal("never"))
        self.copied(self.published_one())

    def dead_letters(self) -> list[tuple[TopicPartition, int, Reason | None]]:
        """Let the broker take all dead letters; return which records they are of, and why."""
        found: list[tuple[TopicPartition, int, Reason | None]] = []
        while records := self.published():
            for failed in records:
                found.append((failed.partition.name, failed.message.offset(), failed.reason))
                self.copied(failed)
        return found

    def finish_running(self) -> None:
        """Let the calls return that run now."""
        for slice_ in list(self.out):
            self.finish(slice_)
        self.tick()

    def park_all(self) -> list[int]:
        """Let the broker take all copies; return their offsets."""
        parked: list[int] = []
        while records := self.published():
            for failed in records:
                parked.append(failed.message.offset())
                self.copied(failed)
        return parked


def test_a_successor_is_parked_and_other_keys_go_on() -> None:
    driven = Parked()
    driven.fail_head()
    driven.deliver(Note(1, b"k"), Note(2, b"other"), Note(3, b"k"))
    assert driven.park_all() == [1, 3]
    assert driven.running_offsets == [2]
    driven.finish_all()
    assert driven.committable == 4, "the window slides"
    assert driven.parking.figures() == ParkingFigures(keys=1, followers=2)
    assert driven.parking.indexes[ORDERS].records == 3


def test_a_window_of_records_that_wait_for_their_head_is_not_blocked() -> None:
    driven = Parked()
    driven.fail_head()
    driven.deliver(driven.copy_of(0, 1), driven.copy_of(1, 2), name=PARK)
    driven.tick()
    assert driven.running_offsets == []
    assert driven.tick(100.0).hovering == []


def longest(driven: Parked) -> list[tuple[Any, ...]]:
    """Return what a snapshot shows of the parked keys, without its partition."""
    parked = driven.snapshot().parked
    assert parked is not None
    names = ("key", "offset", "followers", "in_ladder_s", "copy")
    assert all(each.name == ORDERS for each in parked.longest)
    return [tuple(getattr(each, name) for name in names) for each in parked.longest]


def test_the_snapshot_has_parked_keys_their_head_and_since_when() -> None:
    driven = Parked()
    driven.fail_head()
    driven.deliver(Note(1, b"k"), Note(2, b"k"))
    assert longest(driven) == [], "nothing waits behind it yet"
    assert driven.park_all() == [1, 2]
    driven.deliver(driven.copy(7, 3.0, original=0), name=RETRIED)
    driven.tick(1.0)
    assert longest(driven) == [("k", 0, 2, 1.0, "")], "it is not due"
    driven.tick(3.0)
    seen = driven.snapshot().parked
    assert seen is not None
    assert (seen.keys, seen.followers) == (1, 2)
    assert longest(driven) == [("k", 0, 2, 4.0, "g.orders.retry.1s/0/7")]
    driven.finish_running()
    driven.tick(1.0)
    assert longest(driven) == [("k", 1, 1, 5.0, "")], "the next one is the head, of the same key"


def test_the_snapshot_is_limited_to_the_keys_that_have_waited_longest() -> None:
    driven = Parked()
    index = driven.parking.indexes[ORDERS] = LadderIndex(NO_LIMITS)
    for number in range(100):
        index.enter(b"%d" % number, number, -100.0 + number)
        if number % 2:
            index.enter(b"%d" % number, 1000 + number, 0.0)
    driven.now = 0.0
    seen = driven.snapshot().parked
    assert seen is not None
    assert (seen.keys, seen.followers) == (100, 50)
    assert [each.key for each in seen.longest] == [str(2 * number + 1) for number in range(20)]
    assert seen.longest[0].in_ladder_s == 99.0


def test_a_scan_says_since_when_this_member_knows_a_key() -> None:
    driven = scanned((PARK, LadderCopy(0, b"k", 1)), (PARK, LadderCopy(1, b"k", 2)))
    driven.assign(PARK, RETRIED, ORDERS)
    driven.tick(3.0)
    assert longest(driven) == [("k", 1, 1, 3.0, "")]


def test_parked_copies_start_in_order_when_the_one_before_has_ended() -> None:
    driven = Parked()
    driven.fail_head()
    driven.deliver(Note(1, b"k"), Note(2, b"k"))
    assert driven.park_all() == [1, 2]
    driven.deliver(driven.copy_of(0, 1), driven.copy_of(1, 2), name=PARK)
    driven.tick()
    assert driven.running_offsets == []
    driven.deliver(driven.copy_of(7, 0), name=RETRIED)
    driven.tick()
    assert driven.running_offsets == [7], "the head is in a level"
    for next_offset in (0, 1):
        driven.finish(driven.out[0])
        driven.tick()
        assert driven.running_offsets == [next_offset]
    driven.finish_all()
    assert not driven.parking.indexes[ORDERS]
    driven.deliver(Note(3, b"k"))
    driven.tick()
    assert driven.running_offsets == [3], "its lane is open no more"


def test_a_record_that_is_in_the_ladder_already_finishes_without_a_second_copy() -> None:
    driven = Parked()
    driven.fail_head()
    driven.parking.indexes[ORDERS].enter(b"k", 1, 0.0)
    driven.deliver(Note(1, b"k"))
    assert driven.park_all() == []
    assert driven.committable == 2
    assert driven.parking.indexes[ORDERS].records == 2


def test_a_copy_that_is_refused_is_written_again_before_its_record_is_parked() -> None:
    driven = Parked()
    driven.fail_head()
    driven.deliver(Note(1, b"k"), Note(2, b"k"))
    driven.copied(driven.published_one(), PublishFailedError("lost"))
    assert driven.parking.indexes[ORDERS].records == 1
    driven.tick(20.0)
    (again,) = driven.last_published
    assert again.message.offset() == 1, "the one behind it waits"
    driven.copied(again)
    assert driven.park_all() == [2]


def test_a_dead_head_lets_its_successor_go_on() -> None:
    driven = Parked()
    driven.fail_head()
    driven.deliver(Note(1, b"k"))
    assert driven.park_all() == [1]
    driven.deliver(driven.copy_of(0, 1), name=PARK)
    driven.tick()
    driven.deliver(driven.copy_of(0, 0), name=RETRIED)
    driven.tick()
    (slice_,) = driven.out
    assert slice_.partition.name == RETRIED
    driven.fail(slice_, 0, error=Fatal("never"))
    driven.copied(driven.published_one())
    driven.tick()
    (slice_,) = driven.out
    assert slice_.partition.name == PARK


FOLLOWS = Reason.FOLLOWS


def test_records_behind_a_dead_head_follow_it_one_after_another() -> None:
    driven = Parked(follows=True)
    driven.fail_head()
    driven.deliver(*(Note(at, b"k") for at in (1, 2, 3)), Note(4, b"other"))
    assert driven.park_all() == [1, 2, 3]
    driven.finish_all()
    driven.deliver(driven.copy_of(0, 1), driven.copy_of(1, 2), name=PARK)
    driven.kill_head()
    assert driven.dead_letters() == [(PARK, 0, FOLLOWS), (PARK, 1, FOLLOWS)]
    assert driven.running_offsets == []
    driven.deliver(driven.copy_of(2, 3), name=PARK)
    assert driven.dead_letters() == [(PARK, 2, FOLLOWS)], "it was not delivered when its head died"
    assert not driven.parking.indexes[ORDERS]
    driven.deliver(Note(5, b"k"))
    driven.tick()
    assert driven.running_offsets == [5]


def test_a_record_that_comes_after_the_death_follows_nobody() -> None:
    driven = Parked(follows=True)
    driven.fail_head()
    driven.deliver(Note(1, b"k"))
    assert driven.park_all() == [1]
    driven.kill_head()
    driven.deliver(Note(2, b"k"))
    assert driven.park_all() == [2]
    driven.deliver(driven.copy_of(0, 1), driven.copy_of(1, 2), name=PARK)
    assert driven.dead_letters() == [(PARK, 0, FOLLOWS)]
    driven.tick()
    assert driven.running_offsets == [1]


def test_what_waits_in_the_source_follows_too() -> None:
    driven = Parked(ParkLimits(max_records=1), follows=True)
    driven.fail_head()
    driven.deliver(Note(1, b"k"), Note(2, b"k"))
    assert driven.park_all() == []
    driven.kill_head()
    assert driven.dead_letters() == [(ORDERS, 1, FOLLOWS), (ORDERS, 2, FOLLOWS)]
    assert driven.committable == 3


def test_only_a_dead_head_is_followed() -> None:
    driven = Parked(follows=True)
    driven.fail_head()
    driven.deliver(Note(1, b"k"))
    assert driven.park_all() == [1]
    driven.deliver(driven.copy_of(0, 1), name=PARK)
    driven.deliver(driven.copy_of(0, 0), name=RETRIED)
    driven.tick()
    driven.finish_running()
    assert (driven.running_offsets, driven.dead_letters()) == ([0], [])


def test_a_dead_letter_that_nobody_takes_yet_is_written_again_before_the_next_follows() -> None:
    driven = Parked(follows=True)
    driven.fail_head()
    driven.deliver(Note(1, b"k"), Note(2, b"k"))
    assert driven.park_all() == [1, 2]
    driven.deliver(driven.copy_of(0, 1), driven.copy_of(1, 2), name=PARK)
    driven.kill_head()
    driven.copied(driven.published_one(), PublishFailedError("lost"))
    driven.tick(20.0)
    (again,) = driven.last_published
    assert again.message.offset() == 0
    driven.copied(again)
    assert driven.dead_letters() == [(PARK, 1, FOLLOWS)]


def test_a_family_that_is_put_back_goes_on_in_order() -> None:
    driven = Parked(follows=True)
    driven.deliver(*(driven.copy_of(at, at) for at in (0, 1, 2)), name=PARK)
    for at in (0, 1, 2):
        driven.tick()
        assert driven.running_offsets == [at]
        driven.finish_running()


def test_a_head_that_is_put_back_in_time_is_not_followed_any_more() -> None:
    driven = Parked(follows=True)
    driven.fail_head()
    driven.deliver(Note(1, b"k"))
    assert driven.park_all() == [1]
    driven.kill_head()
    driven.deliver(driven.copy_of(0, 0), driven.copy_of(1, 1), name=PARK)
    for at in (0, 1):
        driven.tick()
        assert driven.running_offsets == [at]
        driven.finish_running()


def test_a_lost_source_partition_has_no_index() -> None:
    driven = Parked()
    driven.fail_head()
    driven.engine.on_lost([ORDERS], driven.now)
    assert driven.parking.indexes == {}


def test_the_records_behind_a_failed_one_in_its_slice_are_parked() -> None:
    driven = Parked(slots=1)
    driven.engine.dispatcher.length.record(1000, 0.001)
    driven.deliver(Note(0, b"k"), Note(1, b"k"), Note(2, b"k"))
    driven.tick()
    slice_ = driven.out[0]
    assert len(slice_.messages) > 1
    slice_.deviate().held.extend(slice_.messages[1:])  # as slots do it
    driven.fail(slice_, 0)
    assert driven.park_all() == [0, 1, 2]
    assert driven.committable == 3


def test_successors_beyond_the_bound_wait_in_the_source_and_keep_their_order() -> None:
    driven = Parked(ParkLimits(max_records=2))
    driven.fail_head()
    driven.deliver(*(Note(at, b"k") for at in (1, 2, 3)), Note(4, b"other"))
    assert driven.park_all() == [1]
    driven.finish_all()
    assert driven.committable < 3, "nothing is dropped"
    driven.deliver(driven.copy_of(0, 1), name=PARK)
    driven.deliver(driven.copy_of(0, 0), name=RETRIED)
    driven.tick()
    called: list[tuple[str, int]] = []
    while driven.out:
        (slice_,) = driven.out
        called.append((slice_.partition.name.topic, slice_.messages[0].offset()))
        driven.finish(slice_)
        driven.tick()
    assert called == [(RETRIED.topic, 0), (PARK.topic, 0), ("orders", 2), ("orders", 3)]
    assert driven.committable == 5
    assert not driven.parking.indexes[ORDERS]


def test_a_record_that_waited_in_the_source_and_fails_there_keeps_its_place() -> None:
    driven = Parked(ParkLimits(max_records=1))
    driven.fail_head()
    driven.deliver(Note(1, b"k"), Note(2, b"k"))
    driven.tick()
    driven.deliver(driven.copy_of(0, 0), name=RETRIED)
    driven.tick()
    driven.finish_running()
    assert driven.running_offsets == [1]
    assert driven.failing_offsets() == [1, 2]
    driven.fail(driven.out[0], 1)
    driven.copied(driven.published_one())
    driven.tick()
    assert driven.running_offsets == []
    driven.deliver(driven.copy_of(1, 1), name=RETRIED)
    driven.tick()
    assert driven.running_offsets == [1]
    driven.finish_running()
    assert driven.running_offsets == [2]


def test_a_dead_letter_that_is_put_back_opens_its_lane_again() -> None:
    driven = Parked()
    driven.deliver(driven.copy_of(0, 5), name=PARK)
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.copied(driven.published_one())
    driven.deliver(Note(6, b"k"))
    assert driven.park_all() == [6]


def test_a_copy_that_is_skipped_while_it_is_held_frees_its_successor_later() -> None:
    driven = Parked()
    driven.fail_head()
    driven.deliver(Note(1, b"k"), Note(2, b"k"))
    assert driven.park_all() == [1, 2]
    driven.deliver(driven.copy_of(0, 1), driven.copy_of(1, 2), name=PARK)
    driven.tick()
    driven.engine.on_intervention(PARK, 0, Intervention.SKIP, driven.now)
    driven.deliver(driven.copy_of(0, 0), name=RETRIED)
    driven.tick()
    driven.finish_running()
    assert driven.running_offsets == [1]
    assert driven.engine.partitions[PARK].name == driven.out[0].partition.name


def test_an_expired_head_and_its_successor_may_have_their_turns_at_once() -> None:
    driven = Parked()
    driven.fail_head()
    driven.deliver(Note(1, b"k"))
    assert driven.park_all() == [1]
    expired = driven.copy_of(0, 0)
    driven.engine.turns.rules.insert(0, EndsAtTurn())
    driven.deliver(expired, driven.copy_of(1, 1), name=PARK)
    driven.tick()
    driven.tick()
    assert driven.running_offsets == [1]


class EndsAtTurn(TurnRule):
    """Skips the copy at offset 0."""

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        del partition, now, wall_ms
        return {
            at: Finish(Outcome.SKIPPED) for at, each in enumerate(messages) if each.offset() == 0
        }


def test_held_copies_of_a_partition_that_comes_back_are_reported() -> None:
    driven = Parked()
    driven.fail_head()
    driven.deliver(Note(1, b"k"))
    assert driven.park_all() == [1]
    driven.deliver(driven.copy_of(0, 1), name=PARK)
    driven.tick()
    driven.engine.on_revoking([PARK], driven.now)
    driven.engine.on_lost([PARK], driven.now)
    driven.assign(PARK)
    driven.deliver(driven.copy_of(0, 1), name=PARK)
    driven.deliver(driven.copy_of(0, 0), name=RETRIED)
    driven.tick()
    driven.finish_running()
    (slice_,) = driven.out
    assert slice_.partition.name == PARK


def scanned(*copies: tuple[TopicPartition, LadderCopy], **given: Any) -> Parked:
    """Return what begins with copies in its ladder."""
    driven = Parked(assigns=False, **given)
    for name, copy in copies:
        driven.ladder.contents.setdefault(name, []).append(copy)
    futures = [driven.scans.begin(name) for name in (PARK, RETRIED, ORDERS)]
    for future in futures:
        assert future.result(WAIT_S) is None
    return driven


def test_what_the_scan_has_found_keeps_its_order() -> None:
    driven = scanned((PARK, LadderCopy(4, b"k", 1)), (RETRIED, LadderCopy(9, b"k", 0)))
    driven.assign(RETRIED, PARK, ORDERS)
    driven.deliver(Note(0, b"k"), Note(1, b"k"), Note(2, b"k"), Note(3, b"other"))
    assert driven.park_all() == [2], "the others are in the ladder already"
    assert driven.running_offsets == [3]


def test_what_followed_a_dead_head_before_a_crash_follows_it_afterwards() -> None:
    copies = (LadderCopy(0, b"k", 1, follows=0), LadderCopy(1, b"k", 2))
    driven = scanned(*((PARK, each) for each in copies), follows=True)
    driven.assign(RETRIED, PARK, ORDERS)
    driven.deliver(driven.copy_of(0, 1), driven.copy_of(1, 2), name=PARK)
    assert driven.dead_letters() == [(PARK, 0, FOLLOWS)]
    driven.tick()
    assert driven.running_offsets == [1]


def test_what_an_earlier_assignment_has_finished_is_not_outstanding() -> None:
    driven = scanned((PARK, LadderCopy(0, b"k", 1)), (PARK, LadderCopy(1, b"k", 2)))
    driven.assign(PARK, finished=(range(1),))
    driven.assign(RETRIED, ORDERS)
    (lane,) = driven.parking.indexes[ORDERS].parked()
    assert (lane.lane, lane.head, lane.followers) == (b"k", 2, 0)


def test_a_scan_waits_for_all_partitions_of_the_ladder() -> None:
    driven = Parked(assigns=False)
    source = driven.scans.begin(ORDERS)
    assert driven.scans.begin(PARK).done()
    assert not source.done()
    driven.scans.begin(RETRIED)
    source.result(WAIT_S)
    assert driven.ladder.reads == 1


def test_a_partition_that_is_not_ours_any_more_counts_no_longer() -> None:
    driven = Parked(assigns=False)
    driven.scans.begin(PARK)
    driven.scans.remove(PARK)
    driven.scans.begin(RETRIED)
    source = driven.scans.begin(ORDERS)
    assert not source.done()
    driven.scans.begin(PARK)
    source.result(WAIT_S)


def test_a_source_does_not_wait_for_a_ladder_that_another_member_has() -> None:
    now = 0.0
    scans = LadderScans(OneLadder(), lambda _run: None, lambda: now)
    source = scans.begin(ORDERS)
    assert scans.scan_complete()
    assert not source.done()
    now = OWN_S + 1
    assert scans.scan_complete()
    assert source.done()
    assert not scans.scan_complete()


def test_a_scan_that_fails_is_made_again() -> None:
    driven = Parked(assigns=False)
    driven.ladder.failures.append(OSError("no answer"))
    *_, source = [driven.scans.begin(name) for name in (PARK, RETRIED, ORDERS)]
    assert isinstance(source.exception(WAIT_S), OSError)
    driven.scans.begin(ORDERS).result(WAIT_S)


def test_a_partition_of_the_ladder_that_comes_later_starts_at_once() -> None:
    driven = scanned()
    driven.assign(PARK, RETRIED, ORDERS)
    driven.engine.on_lost([PARK], driven.now)
    assert driven.scans.begin(PARK).done()
    assert driven.ladder.reads == 1
