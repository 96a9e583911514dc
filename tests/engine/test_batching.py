"""When batches go out, and that they are one running unit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, notes
from window_consumer.engine.scheduling.batching import BatchRules


def driven(
    most: int = 4, least: int = 1, wait_s: float = 0.5, start: int = 0, **rules: Any
) -> Driven:
    given: dict[str, Any] = {"window_cells": 8, "cell_records": 100, **rules}
    return Driven(start, batch=BatchRules(most, least, wait_s), **given)


def offsets(it: Driven) -> list[list[int]]:
    return [[m.offset() for m in slice_.messages] for slice_ in it.out]


def test_a_full_batch_goes_out_at_once_and_the_rest_as_far_as_slots_are_free() -> None:
    it = driven(most=4)
    it.deliver(*notes(*range(10)))
    it.tick()
    assert offsets(it) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert all(slice_.is_batch for slice_ in it.out)


def test_a_batch_with_less_than_its_least_waits_for_more() -> None:
    it = driven(most=4, least=3)
    it.deliver(*notes(0, 1))
    assert it.tick().dispatch == []
    assert it.engine.wait_s(it.now, 10.0) == pytest.approx(0.5)
    it.deliver(*notes(2))
    it.tick(0.1)
    assert offsets(it) == [[0, 1, 2]]


def test_a_batch_goes_out_when_its_first_record_has_waited_long_enough() -> None:
    it = driven(most=4, least=3, wait_s=0.5)
    it.deliver(*notes(0))
    it.tick()
    it.deliver(*notes(1))
    it.tick(0.4)
    assert it.out == []
    assert it.engine.wait_s(it.now, 10.0) == pytest.approx(0.1)
    it.tick(0.1)
    assert offsets(it) == [[0, 1]]


def test_a_batch_that_cannot_grow_because_the_window_is_full_does_not_wait() -> None:
    it = driven(most=6, least=6, wait_s=9.0, window_cells=2, cell_records=3)
    it.deliver(*notes(*range(5)))
    it.tick()
    assert it.out == []
    it.deliver(*notes(5, 6))
    it.tick()
    assert offsets(it) == [[0, 1, 2, 3, 4, 5]]
    it.finish(it.out[0])
    it.tick()
    assert it.out == []


def test_a_batch_that_cannot_grow_because_the_memory_is_used_does_not_wait() -> None:
    it = driven(most=50, least=50, wait_s=9.0, window_bytes=30)
    it.deliver(*notes(0, 1, size=10))
    it.tick()
    assert it.out == []
    it.deliver(*notes(2, size=10))
    it.tick()
    assert offsets(it) == [[0, 1, 2]]


def test_while_all_slots_are_busy_a_batch_grows() -> None:
    it = driven(most=4, least=1, slots=1)
    it.deliver(*notes(0))
    it.tick()
    it.deliver(*notes(1))
    it.tick()
    it.deliver(*notes(2))
    it.tick(9.0)
    assert offsets(it) == [[0]]
    assert it.engine.wait_s(it.now, 10.0) > 0
    it.finish(it.out[0])
    it.tick()
    assert offsets(it) == [[1, 2]]


def test_a_full_batch_is_queued_behind_those_that_run_and_no_more_than_one_a_slot() -> None:
    it = driven(most=2, slots=1)
    it.deliver(*notes(*range(8)))
    it.tick()
    assert offsets(it) == [[0, 1], [2, 3]]


def test_each_batch_holds_records_of_one_partition() -> None:
    it = driven(most=4, names=(ORDERS, OTHERS))
    it.deliver(*notes(0, 1))
    it.deliver(*notes(0, 1), name=OTHERS)
    it.tick()
    assert {(slice_.partition.name, len(slice_.messages)) for slice_ in it.out} == {
        (ORDERS, 2),
        (OTHERS, 2),
    }


def test_a_batch_holds_several_records_of_one_key_and_no_other_has_one() -> None:
    it = driven(most=3, ordering="key")
    keys = [b"a", b"a", b"b", b"a", b"c"]
    it.deliver(*notes(*range(5), keys=keys))
    it.tick()
    assert offsets(it) == [[0, 1, 2], [4]]
    it.finish(it.out[0])
    it.tick()
    assert offsets(it) == [[4], [3]]


def test_what_comes_later_joins_its_key_in_a_batch_that_still_waits() -> None:
    it = driven(most=4, least=4, ordering="key")
    it.deliver(*notes(0, 1, keys=[b"a", b"b"]))
    it.tick()
    it.deliver(*notes(2, 3, keys=[b"a", b"b"]))
    it.tick()
    assert offsets(it) == [[0, 1, 2, 3]]


def test_a_batch_is_in_the_order_of_offsets_whatever_lines_its_records_stood_in() -> None:
    it = driven(most=8, least=1, ordering="key", slots=2)
    it.deliver(*notes(0, 1, keys=[b"a", b"b"]))
    it.tick()
    it.deliver(*notes(2, 3, 4, 5, keys=[b"b", b"a", b"b", b"a"]))
    it.tick()
    it.deliver(*notes(6, keys=[b"c"]))
    it.tick()
    first, *_ = it.out
    assert offsets(it) == [[0, 1], [6]]
    it.finish(first)
    it.tick()
    assert offsets(it)[-1] == [2, 3, 4, 5]


def test_in_order_of_the_partition_there_is_one_batch_at_a_time() -> None:
    it = driven(most=2, ordering="partition")
    it.deliver(*notes(*range(4)))
    it.tick()
    assert offsets(it) == [[0, 1]]
    it.finish(it.out[0])
    it.tick()
    assert offsets(it) == [[2, 3]]


def test_a_waiting_batch_grows_in_order_of_the_partition() -> None:
    it = driven(most=4, least=3, ordering="partition")
    it.deliver(*notes(0))
    it.tick()
    it.deliver(*notes(1, 2))
    it.tick()
    assert offsets(it) == [[0, 1, 2]]


def test_nothing_is_taken_back_from_a_batch_that_runs() -> None:
    it = driven(most=4, slots=2)
    it.deliver(*notes(*range(4)))
    it.tick()
    it.claim(it.out[0])
    it.tick(30.0)
    it.engine.on_revoking([ORDERS], it.now)
    assert offsets(it) == [[0, 1, 2, 3]]
    it.finish(it.out[0])
    commits, outlived = it.engine.on_revoked([ORDERS], it.now)
    assert [commit.next_offset for commit in commits] == [4]
    assert outlived == []


def test_a_batch_that_was_not_claimed_is_given_up_as_a_whole() -> None:
    it = driven(most=4, slots=2)
    it.deliver(*notes(*range(4)))
    it.tick()
    it.engine.on_revoking([ORDERS], it.now)
    assert it.claim(it.out[0]) == []


def test_all_records_of_a_batch_that_outlives_its_partition_are_reported() -> None:
    it = driven(most=4, slots=2)
    it.deliver(*notes(*range(3)))
    it.tick()
    it.claim(it.out[0])
    outlived = it.engine.on_lost([ORDERS], it.now)
    assert [each.offset for each in outlived] == [0, 1, 2]
    assert it.out[0].call.cancelled


def test_what_waits_for_company_is_not_lost_when_its_partition_is_taken_away() -> None:
    it = driven(most=4, least=4, ordering="key")
    it.deliver(*notes(0, 1, keys=[b"a", b"b"]))
    it.tick()
    it.engine.on_revoking([ORDERS], it.now)
    assert it.tick(9.0).dispatch == []
    commits, _ = it.engine.on_revoked([ORDERS], it.now)
    assert [commit.next_offset for commit in commits] in ([], [0])
