"""A park window full of records that may not start makes room for those behind it."""

from __future__ import annotations

from tests.engine.laddered import RETRIED
from tests.engine.support import ORDERS, Note
from tests.parking.test_rules import PARK, WAIT_S, Parked
from window_consumer.model import headers as names
from window_consumer.model.errors import PublishFailedError
from window_consumer.parking.rotation import AGAIN_S
from window_consumer.parking.scans import LadderCopy


class Rotated(Parked):
    """The keys a and b are in the ladder; four records of a fill the window of the park topic."""

    def __init__(self, delivered: int = 5) -> None:
        super().__init__(window_cells=2, cell_records=2)
        for offset, key in ((0, b"a"), (1, b"b")):
            self.deliver(Note(offset, key))
            self.tick()
            self.fail(self.out[0], offset)
            self.copied(self.published_one())
        for offset in (2, 3, 4, 5, 6):
            self.deliver(Note(offset, b"b" if offset == 6 else b"a"))
            assert self.park_all() == [offset]
        for offset in range(delivered):
            self.parked(offset, offset + 2)
        self.tick()

    def parked(self, offset: int, original: int) -> None:
        """Deliver a copy in the park topic."""
        key = b"b" if original == 6 else b"a"
        copy = self.copy(offset, 0.0, key, original=original)
        headers = copy.headers()
        assert headers is not None
        headers.append((names.REASON, b"PARKED"))
        self.deliver(copy, name=PARK)

    def finish_head(self, key: bytes) -> None:
        """Let the first record of a key end in its level."""
        offset = self.engine.partitions[RETRIED].next_delivery
        self.deliver(self.copy(offset, 0.0, key, original=b"ab".index(key)), name=RETRIED)
        self.tick()
        self.finish_running()

    def rotated(self) -> list[int]:
        """Return the offsets of the records that are copied now."""
        assert all(each.partition.name == PARK for each in self.last_published)
        return [each.message.offset() for each in self.last_published]


def test_records_at_the_start_make_room_for_one_behind_the_window_that_may_start() -> None:
    driven = Rotated()
    assert driven.rotated() == [], "both keys wait for a level: nobody behind may start"
    driven.finish_head(b"b")
    assert driven.rotated() == [0, 1], "those of the first cell"
    for failed in list(driven.last_published):
        copy = driven.engine.copy_of(failed)
        assert (copy.topic, copy.partition) == (PARK.topic, PARK.partition)
        assert copy.headers == failed.message.headers()
        driven.copied(failed)
    driven.tick()
    assert driven.running_offsets == [4]
    assert driven.engine.counters.rotated == 2
    assert (driven.engine.counters.parked, driven.parking.indexes[ORDERS].records) == (5, 6)
    park = driven.engine.partitions[PARK].window
    assert park.next_offset == 2, "the window slides"


def test_a_rotated_record_starts_once_and_in_its_order() -> None:
    driven = Rotated()
    driven.finish_head(b"b")
    for failed in list(driven.last_published):
        driven.copied(failed)
    driven.parked(5, 2)
    driven.parked(6, 3)
    driven.tick()
    driven.finish_running()
    assert driven.running_offsets == [], "all others wait for the head of a"
    driven.finish_head(b"a")
    assert driven.running_offsets == [5]
    driven.finish_running()
    assert driven.rotated() == [2, 3], "the next one is behind them"
    for failed in list(driven.last_published):
        driven.copied(failed)
    driven.parked(7, 4)
    driven.parked(8, 5)
    order: list[int] = []
    driven.tick()
    while driven.out:
        order += driven.running_offsets
        driven.finish_running()
    assert order == [6, 7, 8]
    assert not driven.parking.indexes[ORDERS]


def test_each_record_is_rotated_at_most_once_in_ten_seconds() -> None:
    driven = Rotated(delivered=4)
    driven.finish_head(b"b")
    for offsets in ([0, 1], [2, 3]):
        assert driven.rotated() == offsets
        for failed in list(driven.last_published):
            driven.copied(failed)
        for offset in offsets:
            driven.parked(offset + 4, offset + 2)
        driven.tick()
    assert driven.rotated() == []
    driven.tick(AGAIN_S - 0.1)
    assert driven.rotated() == []
    driven.tick(0.2)
    assert driven.rotated() == [4, 5]


def test_each_of_two_copies_of_a_record_is_rotated() -> None:
    driven = Rotated(delivered=2)
    for offset in (2, 3):
        driven.parked(offset, offset)  # a process was killed before it had committed
    driven.tick()
    driven.finish_head(b"b")
    for offsets in ([0, 1], [2, 3]):
        assert driven.rotated() == offsets
        for failed in list(driven.last_published):
            driven.copied(failed)
        for offset in offsets:
            driven.parked(offset + 4, 2 + offset % 2)
        driven.tick()
    assert driven.rotated() == [], "each has been rotated"
    driven.tick(AGAIN_S)
    assert driven.rotated() == [4, 5]


def test_records_make_room_for_the_other_copy_of_a_head_that_has_ended_in_its_level() -> None:
    driven = Parked(window_cells=2, cell_records=2, assigns=False)
    # A process was killed before it had committed that the head left the park topic.
    behind = [LadderCopy(at, b"k", at + 1) for at in range(4)]
    head = LadderCopy(4, b"k", 0)
    driven.ladder.contents = {PARK: [*behind, head], RETRIED: [LadderCopy(0, b"k", 0)]}
    for name in (PARK, RETRIED):
        driven.scans.begin(name)
    driven.assign(PARK, RETRIED)
    driven.scans.begin(ORDERS).result(WAIT_S)
    driven.assign(ORDERS)
    driven.deliver(*(driven.copy_of(each.at, each.offset) for each in behind), name=PARK)
    driven.tick()
    assert not driven.last_published, "the head comes when it is due"
    driven.deliver(driven.copy_of(0, 0), name=RETRIED)
    driven.tick()
    driven.finish_running()
    assert [each.message.offset() for each in driven.last_published] == [0, 1]


def test_two_copies_of_a_record_are_called_one_after_the_other() -> None:
    driven = Rotated(delivered=2)
    driven.parked(2, 2)
    driven.tick()
    driven.finish_head(b"a")
    assert driven.running_offsets == [0]
    driven.finish_running()
    assert driven.running_offsets == [2]
    driven.finish_running()
    assert driven.running_offsets == [1]


def test_a_copy_that_is_refused_is_written_again_and_the_record_stays_outstanding() -> None:
    driven = Rotated()
    driven.finish_head(b"b")
    first, second = driven.last_published
    driven.copied(first, PublishFailedError("lost"))
    driven.copied(second)
    driven.tick(20.0)
    assert driven.rotated() == [0]
    driven.copied(driven.last_published[0])
    driven.tick()
    assert driven.running_offsets == [4]
