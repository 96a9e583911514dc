"""Parking in an Engine: a key that fails keeps its order, and the others of its partition go on."""

from __future__ import annotations

from tests.engine.laddered import ENTRY, RETRIED, Laddered
from tests.engine.support import ORDERS, Note
from window_consumer.engine.partition import Partition
from window_consumer.engine.turn import CopyTo
from window_consumer.model.errors import Fatal, PublishFailedError
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message
from window_consumer.parking.index import ParkLimits
from window_consumer.parking.rules import Parking

PARKED = Outcome(number=250, name="test_parked", words="parked", counter="moved", end="moved")
PARK = ENTRY
"""The park topic is, like the entry topic, one of the ladder without a level."""


def park(partition: Partition, message: Message) -> CopyTo:
    del partition
    copy = Copy(PARK.topic, 0, message.key(), message.value(), [])
    return CopyTo(copy, Reason.MANUAL, PARKED)


class Parked(Laddered):
    """An Engine that parks; what is copied is delivered by hand."""

    def __init__(self) -> None:
        super().__init__(owned=(), ordering="key")
        self.parking = Parking(ParkLimits(), PARKED, park)
        self.engine.decide_turns([self.parking])
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
    assert driven.parking.indexes[ORDERS].records == 3


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
    driven.parking.indexes[ORDERS].enter(b"k", 1)
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


def test_a_lost_source_partition_has_no_index() -> None:
    driven = Parked()
    driven.fail_head()
    driven.engine.on_lost([ORDERS], driven.now)
    assert driven.parking.indexes == {}
