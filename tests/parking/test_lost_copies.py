"""Copies that are deleted before they are read: those behind them start."""

from __future__ import annotations

from tests.engine.laddered import RETRIED
from tests.engine.support import ORDERS, Note
from tests.parking.test_rules import PARK, Parked
from window_consumer.model.record import TopicPartition
from window_consumer.parking.scans import LadderCopy


class Losing(Parked):
    """The records 0, 1 and 2 of a key are in the ladder; a test scans it by hand."""

    def __init__(self) -> None:
        super().__init__(scans_alone=False)
        self.fail_head()
        self.deliver(Note(1, b"k"), Note(2, b"k"))
        assert self.park_all() == [1, 2]

    def lose(self, name: TopicPartition, upto: int) -> None:
        """Let the log of a partition begin later than it was read."""
        begins = self.engine.partitions[name].next_delivery
        self.engine.on_gone(name, range(begins, upto), self.now)

    def scan(self, *left: tuple[TopicPartition, int, int]) -> None:
        """Scan the ladder, in which these copies are left: partition, offset, original offset."""
        self.ladder.contents = {}
        for name, at, original in left:
            copies = self.ladder.contents.setdefault(name, [])
            copies.append(LadderCopy(at, b"k", original))
        assert self.scans.scan_complete()
        self.tick()


def test_the_next_record_starts_when_the_copy_of_the_head_is_gone() -> None:
    driven = Losing()
    driven.deliver(driven.copy_of(0, 1), driven.copy_of(1, 2), name=PARK)
    driven.tick()
    assert driven.running_offsets == []
    driven.lose(RETRIED, 5)
    driven.scan((PARK, 0, 1), (PARK, 1, 2))
    assert [slice_.partition.name for slice_ in driven.out] == [PARK]
    assert driven.running_offsets == [0]
    driven.finish_running()
    assert driven.running_offsets == [1]


def test_a_lane_of_which_nothing_is_left_is_not_in_the_ladder_any_more() -> None:
    driven = Losing()
    driven.lose(PARK, 2)
    driven.lose(RETRIED, 1)
    driven.scan()
    assert not driven.parking.indexes[ORDERS]
    driven.deliver(Note(3, b"k"))
    driven.tick()
    assert driven.running_offsets == [3]


def test_copies_that_are_left_in_the_log_keep_their_order() -> None:
    driven = Losing()
    driven.lose(PARK, 1)
    driven.scan((RETRIED, 0, 0), (PARK, 1, 2))
    driven.deliver(driven.copy_of(1, 2), name=PARK)
    driven.tick()
    assert driven.running_offsets == []
    driven.deliver(driven.copy_of(0, 0), name=RETRIED)
    driven.tick()
    driven.finish_running()
    assert driven.running_offsets == [1]


def test_delivered_copies_count_although_their_log_has_them_no_more() -> None:
    driven = Losing()
    driven.deliver(driven.copy(0, 2.0, original=0), name=RETRIED)
    driven.deliver(driven.copy_of(0, 1), driven.copy_of(1, 2), name=PARK)
    driven.tick()
    driven.lose(RETRIED, 5)
    driven.lose(PARK, 9)
    driven.scan()
    assert driven.running_offsets == [], "the head waits for its time"
    assert driven.parking.indexes[ORDERS].records == 3
    driven.tick(3.0)
    for expected in (0, 0, 1):
        assert driven.running_offsets == [expected]
        driven.finish_running()


def test_what_is_parked_during_the_scan_remains() -> None:
    driven = Losing()
    driven.lose(RETRIED, 1)
    driven.deliver(Note(3, b"k"))
    assert driven.park_all() == [3]
    driven.scan((PARK, 0, 1), (PARK, 1, 2))
    assert driven.parking.indexes[ORDERS].records == 3, "but for the head"


def test_a_finished_copy_that_is_not_committed_yet_is_not_left() -> None:
    driven = Losing()
    driven.deliver(driven.copy_of(0, 0), name=RETRIED)
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.copied(driven.published_one())
    driven.lose(RETRIED, 5)
    driven.scan((RETRIED, 0, 0), (PARK, 0, 1), (PARK, 1, 2))
    assert driven.parking.indexes[ORDERS].records == 2


def test_a_scan_that_fails_is_repeated() -> None:
    driven = Losing()
    driven.lose(RETRIED, 1)
    driven.ladder.failures.append(OSError("no answer"))
    driven.scan((PARK, 0, 1), (PARK, 1, 2))
    assert driven.parking.indexes[ORDERS].records == 3
    driven.scan((PARK, 0, 1), (PARK, 1, 2))
    assert driven.parking.indexes[ORDERS].records == 2


def test_a_recreated_topic_of_the_ladder_is_read_again() -> None:
    driven = Losing()
    driven.engine.on_lost([PARK], driven.now)
    driven.assign(PARK)
    driven.scan((RETRIED, 0, 0))
    assert driven.parking.indexes[ORDERS].records == 1
