"""What a Source delivers is looked at before it is believed."""

from __future__ import annotations

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, Note, notes
from window_consumer.engine.deliveries import REMEMBERED_HOLES, ImpossibleRecordsError
from window_consumer.model.protocols import Batch
from window_consumer.model.record import TopicPartition


@pytest.mark.parametrize(
    "theirs", [TopicPartition("payments", 0), TopicPartition("orders", 1)], ids=str
)
@pytest.mark.parametrize("position", [0, 2])
def test_records_of_another_partition_are_refused(theirs: TopicPartition, position: int) -> None:
    driven = Driven()
    messages = notes(0, 1, 2)
    messages[position].belong_to(theirs)
    with pytest.raises(ImpossibleRecordsError):
        driven.engine.on_records(Batch.of(ORDERS, messages), driven.now, driven.wall_ms)
    assert driven.engine.work.unfinished() == 0
    assert driven.committable == 0


def test_records_beyond_a_hole_and_the_log_end_are_not_taken() -> None:
    driven = Driven()
    driven.deliver(*notes(0, 1))
    batch = Batch.of(ORDERS, notes(16_900, 16_901))
    assert driven.engine.leaves_hole(batch)
    driven.engine.on_log_ends({ORDERS: 25})
    assert not driven.engine.on_records(batch, driven.now, driven.wall_ms)
    driven.deliver(*notes(2, 24))
    driven.tick()
    driven.finish_all()
    assert driven.committable == 25
    assert driven.engine.counters.processed == 4


def test_a_log_end_that_is_behind_refuses_no_record_that_follows() -> None:
    driven = Driven()
    driven.engine.on_log_ends({ORDERS: 1})
    batch = Batch.of(ORDERS, notes(0, 1, 2))
    assert not driven.engine.leaves_hole(batch)
    assert driven.engine.on_records(batch, driven.now, driven.wall_ms)
    assert driven.engine.work.unfinished() == 3


def test_records_that_come_after_later_ones_are_reported() -> None:
    driven = Driven()
    driven.deliver(*notes(0, 1, 5, 6, 9))
    driven.deliver(*notes(1, 3, 4, 6, 7, 10))
    (news,) = driven.tick().passed_over
    assert (news.name, news.offsets) == (ORDERS, range(3, 8))
    assert driven.tick().passed_over == []
    assert driven.engine.work.unfinished() == 6


def test_records_that_come_a_second_time_are_dropped_without_a_word() -> None:
    driven = Driven(start=3, names=(ORDERS, OTHERS))
    driven.deliver(*notes(3, 4, 7))
    driven.deliver(*notes(3, 4, 7, 8))
    driven.deliver(*notes(0, 1, 2))
    assert driven.tick().passed_over == []
    assert driven.engine.counters.stale == 6
    assert driven.engine.work.unfinished() == 4


def test_only_the_latest_holes_are_remembered() -> None:
    driven = Driven(window_cells=200, cell_records=10)
    count = REMEMBERED_HOLES + 10
    driven.deliver(*(Note(2 * number) for number in range(count)))
    driven.deliver(Note(1), Note(2 * count - 3))
    (news,) = driven.tick().passed_over
    assert news.offsets == range(2 * count - 3, 2 * count - 2)
