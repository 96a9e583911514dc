"""A source topic that is deleted and recreated has the same offsets again: they are told apart."""

from __future__ import annotations

from tests.engine.laddered import RETRIED
from tests.engine.support import ORDERS, Note
from tests.parking.test_rules import PARK, WAIT_S, Parked
from window_consumer.model import headers as names
from window_consumer.parking.index import LadderIndex
from window_consumer.parking.scans import LadderCopy

OLD, NEW = b"old", b"new"


class Recreated(Parked):
    """The source topic has an id; a test scans the ladder by hand."""

    def __init__(self, topic_id: bytes, *copies: LadderCopy) -> None:
        super().__init__(assigns=False)
        self.ladder.contents = {PARK: list(copies)}
        for name in (PARK, RETRIED):
            self.scans.begin(name)
        self.assign(PARK, RETRIED)
        self.begin_source(topic_id)

    def begin_source(self, topic_id: bytes) -> None:
        """Let the source begin, after its ladder has been scanned."""
        self.scans.begin(ORDERS).result(WAIT_S)
        self.assign(ORDERS, topic_id=topic_id.decode())

    def copy_with(self, topic_id: bytes | None, offset: int, original: int) -> Note:
        """Return a copy of a record of the source with an id; None for one of an old version."""
        copy = self.copy_of(offset, original)
        headers = copy.headers()
        assert headers is not None
        if topic_id is not None:
            headers.append((names.ORIGINAL_TOPIC_ID, topic_id))
        return copy

    @property
    def index(self) -> LadderIndex:
        return self.parking.indexes[ORDERS]


def test_a_new_record_with_the_offset_of_an_old_copy_is_not_taken_for_it() -> None:
    driven = Recreated(NEW, LadderCopy(0, b"k", 0, topic_id=OLD))
    driven.deliver(Note(0, b"k"))
    driven.tick()
    assert driven.running_offsets == [0]


def test_a_copy_without_an_id_is_of_the_topic_that_there_is_now() -> None:
    driven = Recreated(NEW, LadderCopy(0, b"k", 0))
    driven.deliver(Note(0, b"k"), Note(1, b"k"))
    assert driven.park_all() == [1]
    assert driven.index.records == 2


def test_old_copies_keep_their_own_order() -> None:
    copies = [LadderCopy(at, b"k", at + 5, topic_id=OLD) for at in (0, 1)]
    driven = Recreated(NEW, *copies, LadderCopy(2, b"k", 0, topic_id=NEW))
    driven.deliver(*(driven.copy_with(OLD, at, at + 5) for at in (1,)), name=PARK)
    driven.tick()
    assert driven.running_offsets == [], "5 comes before 6"


def test_held_copies_are_asked_about_again_when_their_topic_was_recreated() -> None:
    driven = Recreated(OLD)
    driven.deliver(driven.copy_with(OLD, 0, 0), name=RETRIED)
    driven.deliver(driven.copy_with(OLD, 0, 1), driven.copy_with(OLD, 1, 2), name=PARK)
    driven.tick()
    (head,) = driven.out
    assert head.partition.name == RETRIED
    driven.claim(head)
    driven.engine.on_lost([ORDERS], driven.now)
    driven.ladder.contents = {
        RETRIED: [LadderCopy(0, b"k", 0, topic_id=OLD)],
        PARK: [LadderCopy(at, b"k", at + 1, topic_id=OLD) for at in (0, 1)],
    }
    driven.begin_source(NEW)
    driven.deliver(Note(0, b"other"))
    driven.tick()
    assert driven.running_offsets == [0, 0], "the head still, and the new record"
    for expected in (0, 1):
        driven.finish_running()
        assert driven.running_offsets == [expected]
    driven.finish_running()
    assert not driven.index
