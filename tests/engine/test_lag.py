"""How far a partition is behind: the oldest record that is not finished, wherever it is."""

from __future__ import annotations

import pytest

from tests.engine.driver import Driven
from tests.engine.laddered import RETRIED_LATER, Laddered
from tests.engine.support import ORDERS, Note, spent_after
from window_consumer.engine.lag import lag_of
from window_consumer.engine.windows_snapshot import Lag
from window_consumer.model.record import TopicPartition

WALL_MS = 1_700_000_000_000


def old(offset: int, age_s: float, key: bytes | None = None) -> Note:
    return Note(offset, key, written_ms=int(WALL_MS - age_s * 1000))


def lag(driven: Driven, name: TopicPartition = ORDERS) -> Lag:
    partition = driven.engine.partitions[name]
    slices = driven.engine.dispatcher.slices_of(partition)
    return lag_of(partition, slices, driven.failing(name), driven.now, driven.wall_ms)


def test_seconds_are_those_of_the_oldest_record_that_is_not_finished() -> None:
    driven = Driven(slots=2, window_cells=4, cell_records=8)
    driven.deliver(old(0, 300.0), old(1, 200.0), old(2, 100.0))
    assert lag(driven).seconds == 300.0
    driven.tick()
    assert lag(driven).seconds == 300.0
    first = next(each for each in driven.out if each.messages[0].offset() == 0)
    driven.finish(first)
    assert lag(driven).seconds == (200.0 if len(first.messages) == 1 else 100.0)
    driven.finish_all()
    assert lag(driven).seconds == 0.0


def test_a_start_cell_that_was_opened_long_ago_does_not_make_young_records_old() -> None:
    driven = Driven(slots=2, window_cells=4, cell_records=1000)
    driven.deliver(old(0, 9000.0))
    driven.tick()
    driven.finish_all()
    driven.deliver(old(1, 0.5))
    assert lag(driven).seconds == 0.5


def test_a_record_that_waits_for_its_next_call_counts() -> None:
    driven = Driven(slots=2, window_cells=4, cell_records=8, retry=spent_after(3))
    driven.deliver(old(0, 300.0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.deliver(old(1, 1.0))
    assert lag(driven).seconds == 300.0


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_what_waits_behind_the_slots_counts_with_any_order(ordering: str) -> None:
    driven = Driven(slots=1, window_cells=4, cell_records=8, ordering=ordering)
    driven.deliver(*(old(n, 300.0 - n, b"k") for n in range(8)))
    assert lag(driven).seconds == 300.0
    driven.tick()
    assert lag(driven).seconds == 300.0


@pytest.mark.parametrize(
    ("written_ms", "seconds"), [(WALL_MS + 3_600_000, 0.0), (0, 0.0), (-1, 0.0)]
)
def test_a_time_that_cannot_be_is_no_lag(written_ms: int, seconds: float) -> None:
    driven = Driven(slots=1)
    driven.deliver(Note(0, written_ms=written_ms))
    assert lag(driven).seconds == seconds


def test_records_are_counted_from_the_first_that_is_not_finished_to_the_end_of_the_log() -> None:
    driven = Driven(slots=1, window_cells=4, cell_records=2)
    assert lag(driven).records is None
    driven.engine.on_log_ends({ORDERS: 50})
    assert lag(driven).records == 50
    driven.deliver(*(old(n, 1.0) for n in range(4)))
    driven.tick()
    driven.finish_all()
    assert lag(driven).records == 46
    driven.engine.on_log_ends({ORDERS: 4})
    assert lag(driven).records == 0


def test_copies_that_are_not_due_are_no_lag() -> None:
    driven = Laddered()
    driven.deliver(driven.copy(0, -3.0), driven.copy(1, 6.0), name=RETRIED_LATER)
    driven.engine.on_log_ends({RETRIED_LATER: 10})
    assert lag(driven, RETRIED_LATER) == Lag(records=1, seconds=3.0)
    driven.now += 7.0
    driven.wall_ms += 7000
    assert lag(driven, RETRIED_LATER) == Lag(records=10, seconds=10.0)
