from __future__ import annotations

from typing import Literal

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, notes, spent_after
from tests.golden_texts import Golden
from window_consumer.engine.cell_details import (
    MOST_FAILING,
    MOST_RECORDS,
    CellDetails,
    RecordDetails,
    blocking,
    cell_details,
    failing,
    held_message,
)
from window_consumer.engine.scheduling.rate_limit import RateRules
from window_consumer.model.errors import NoHandlerMatched, Skip

KEYS = [b"a", b"b", b"a", None]


def details(driven: Driven, number: int = 0) -> CellDetails:
    found = cell_details(driven.engine, ORDERS, number, driven.now)
    assert found is not None
    return found


def key(record: RecordDetails) -> bytes | None:
    assert record.message is not None
    found: bytes | None = record.message.key()
    return found


def test_a_cell_tells_what_became_of_its_records_and_what_is_to_come(golden: Golden) -> None:
    driven = Driven(slots=2, cell_records=4, window_cells=2, retry=spent_after(3), batch_records=1)
    driven.deliver(*notes(5, 6, 7, 8, keys=[b"a", b"b", b"c", b"d"]))
    driven.tick()
    failing, finishing = driven.out[:2]
    driven.fail(failing, 5)
    driven.finish(finishing)
    driven.tick()
    driven.claim(driven.out[0], 1)
    driven.tick(0.25)
    cell = details(driven)
    assert (cell.first_offset, cell.last_offset, cell.count, cell.open) == (5, 8, 4, 3)
    waiting, running, queued, done = cell.records
    assert (waiting.offset, key(waiting)) == (5, b"a")
    golden(waiting.state)
    assert (waiting.attempts, waiting.error, waiting.due_s) == (1, "ValueError: broken", 0.75)
    assert (running.offset, running.state, running.attempts) == (7, "running", 1)
    assert running.running_s == 0.25
    assert (queued.offset, queued.state, key(queued), queued.attempts) == (8, "waiting", b"d", 0)
    assert (done.offset, done.state, done.message) == (6, "done", None)


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
@pytest.mark.parametrize("per", [None, "worker", "key"])
def test_all_that_wait_are_found_whatever_they_wait_for(
    ordering: str, per: Literal["worker", "key"] | None
) -> None:
    rate = None if per is None else RateRules(per_s=0.001, burst=1, per=per)
    driven = Driven(start=1, slots=1, cell_records=4, ordering=ordering, rate=rate)
    driven.deliver(*notes(1, 2, 3, 4, keys=KEYS))
    driven.tick()
    driven.engine.on_halted(None, driven.now, halted=True)
    cell = details(driven)
    assert [(each.offset, key(each)) for each in cell.records] == list(
        zip([1, 2, 3, 4], KEYS, strict=True)
    )


def test_who_was_skipped_is_distinguished_from_who_is_for_nobody(golden: Golden) -> None:
    driven = Driven(slots=2, cell_records=4, batch_records=1)
    driven.deliver(*notes(5, 6, 7))
    driven.tick()
    errors = {6: Skip(), 7: NoHandlerMatched("is for none of the handlers")}
    while driven.out:
        slice_ = driven.out[-1]
        (message,) = driven.claim(slice_)
        error = errors.get(message.offset())
        if error is None:
            break
        slice_.deviate().skip(message, error)
        driven.finish(slice_)
        driven.tick()
    golden("\n".join(each.state for each in details(driven).records))


def test_only_the_first_of_many_records_are_reported_and_those_that_are_open_come_first() -> None:
    driven = Driven(slots=1, cell_records=MOST_RECORDS + 50, batch_records=MOST_RECORDS + 50)
    driven.deliver(*notes(*range(MOST_RECORDS + 50)))
    records = details(driven).records
    assert [each.offset for each in records] == list(range(MOST_RECORDS))


def test_a_cell_keeps_its_number_while_the_window_slides() -> None:
    driven = Driven(slots=8, cell_records=1, window_cells=4)
    driven.deliver(*notes(0, 1))
    driven.tick()
    for slice_ in list(driven.out):
        if slice_.messages[0].offset() == 0:
            driven.finish(slice_)
    assert details(driven, 1).first_offset == 1
    assert cell_details(driven.engine, ORDERS, 0, driven.now) is None
    assert cell_details(driven.engine, ORDERS, 2, driven.now) is None
    assert cell_details(driven.engine, ORDERS, -1, driven.now) is None
    assert cell_details(driven.engine, OTHERS, 0, driven.now) is None


def test_only_what_is_not_finished_is_held_and_holes_in_the_log_hold_nothing() -> None:
    driven = Driven(slots=2, cell_records=4, window_cells=2, retry=spent_after(3), batch_records=1)
    driven.deliver(*notes(5, 6, 9, 10, keys=[b"a", b"b", b"c", b"d"]))
    driven.tick()
    failing, finishing = driven.out[:2]
    driven.fail(failing, 5)
    driven.finish(finishing)
    driven.tick()
    found = {
        offset: held[0].offset()
        for offset in range(12)
        if (held := held_message(driven.engine, ORDERS, offset)) is not None
    }
    assert found == {5: 5, 9: 9, 10: 10}
    assert held_message(driven.engine, OTHERS, 5) is None


def test_the_records_that_began_to_fail_last_are_reported_with_their_last_error(
    golden: Golden,
) -> None:
    count = MOST_FAILING + 5
    driven = Driven(slots=count, cell_records=count, retry=spent_after(3), batch_records=1)
    driven.deliver(*notes(*range(count)))
    driven.tick()
    assert failing(driven.engine, driven.now) == []
    for slice_ in list(driven.out):
        driven.fail(slice_, slice_.messages[0].offset())
    driven.tick()
    (found,) = failing(driven.engine, driven.now)
    assert (found.name, found.source) == (ORDERS, ORDERS.topic)
    assert [each.offset for each in found.records] == list(range(5, count))[::-1]
    first = found.records[0]
    assert (first.attempts, first.error, first.due_s) == (1, "ValueError: broken", 1.0)
    golden(first.state)


def test_the_first_records_that_hold_up_their_lanes_are_reported_with_who_waits_behind_them() -> (
    None
):
    keys = [b"a", b"a", b"a", b"b", b"c"]
    driven = Driven(ordering="key", batch_records=1, retry=spent_after(1, on_failure="block"))
    driven.deliver(*notes(0, 1, 2, 3, 4, keys=keys))
    driven.tick()
    for slice_ in list(driven.out):
        driven.fail(slice_, 0, 3)
    driven.tick()
    (found,) = blocking(driven.engine, driven.now)
    assert [(each.offset, each.behind) for each in found.records] == [(0, 2)]
    (all_,) = failing(driven.engine, driven.now)
    assert {each.offset: each.behind for each in all_.records} == {0: 2, 3: 0}
