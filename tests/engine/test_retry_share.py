"""Retries beside new records: which slots they get, and which of them come first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, failure, notes, spent_after
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import TopicPartition

SLOW_S = 5.0
SMALL: dict[str, Any] = {"window_cells": 3, "cell_records": 10, "retry": spent_after(9)}


def deliver(driven: Driven, offsets: Sequence[int], name: TopicPartition = ORDERS) -> None:
    keys = [b"%d" % offset for offset in offsets]
    driven.deliver(*notes(*offsets, keys=keys), name=name)
    driven.tick()


def fail(driven: Driven, slices: Sequence[Slice]) -> None:
    """Let all calls of these slices fail after a long time."""
    for slice_ in slices:
        offsets = [message.offset() for message in slice_.messages]
        driven.fail(slice_, *offsets, elapsed=SLOW_S)


def failed(records: int, **rules: Any) -> Driven:
    """Return a worker that has called so many records, and all failed; retries are due in 1 s."""
    driven = Driven(**rules)
    deliver(driven, range(records))
    while driven.out:
        fail(driven, list(driven.out))
        driven.tick()
    return driven


# ---- slots


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_retries_get_all_idle_slots_where_full_windows_keep_new_records_out(ordering: str) -> None:
    driven = failed(30, slots=16, ordering=ordering, **SMALL)
    driven.tick(2.0)
    assert len(driven.out) == 16


def test_retries_leave_slots_idle_where_a_fetch_could_bring_new_records() -> None:
    driven = failed(29, slots=16, **SMALL)
    driven.tick(2.0)
    assert 2 <= len(driven.out) <= 8


def test_room_in_one_partition_is_enough_for_new_records() -> None:
    driven = failed(30, slots=16, names=(ORDERS, OTHERS), **SMALL)
    driven.tick(2.0)
    assert 2 <= len(driven.out) <= 8


def test_new_records_take_idle_slots_before_retries_do() -> None:
    driven = failed(20, slots=16, **SMALL)
    driven.tick(0.9)
    deliver(driven, range(20, 30))
    assert driven.engine.partitions[ORDERS].is_full
    driven.tick(1.0)
    assert sum(len(each.messages) for each in driven.out if each.is_new) == 10
    assert sum(not each.is_new for each in driven.out) == 6


def test_failed_heads_of_ordered_partitions_get_all_slots() -> None:
    """... as nothing can start behind them, however much room there is."""
    names = [TopicPartition("orders", number) for number in range(16)]
    retry = spent_after(9, on_failure="block")
    driven = Driven(slots=16, names=names, ordering="partition", retry=retry)
    for name in names:
        deliver(driven, [0, 1], name)
    for slice_ in list(driven.out):
        driven.fail(slice_, 0, elapsed=SLOW_S)
    driven.tick(0.1)
    assert driven.out == []
    driven.tick(2.0)
    assert len(driven.out) == 16


# ---- the start cell


def failed_in_turn(*cells: int, good: Sequence[int] = (), **rules: Any) -> Driven:
    """Return a worker with full windows, whose cells failed in this order; some succeeded."""
    driven = Driven(**{**SMALL, **rules})
    driven.engine.dispatcher.length.record(10, 10 * SLOW_S)
    driven.engine.dispatcher.length.learn()  # a slice is a record
    deliver(driven, range(30))
    for cell in cells:
        wanted = range(10 * cell, 10 * cell + 10)
        while slices := [each for each in driven.out if each.seqs[0] in wanted]:
            fail(driven, [each for each in slices if each.seqs[0] not in good])
            for slice_ in [each for each in slices if each.seqs[0] in good]:
                driven.finish(slice_, SLOW_S)
            driven.tick(0.01)
    return driven


def called(driven: Driven, calls: int) -> list[int]:
    """Let calls end, one after another; return their offsets. Those of the first cell succeed."""
    offsets = []
    for _ in range(calls):
        slice_ = driven.out[0]
        offsets.append(slice_.messages[0].offset())
        if offsets[-1] < 10:
            driven.finish(slice_, SLOW_S)
        else:
            fail(driven, [slice_])
        driven.tick()
    return offsets


def test_every_second_retry_is_of_the_start_cell_though_others_are_due_for_longer() -> None:
    driven = failed_in_turn(1, 2, 0, slots=30)
    driven.engine.dispatcher.slots = 1
    driven.tick(2.0)
    assert called(driven, 8) == [0, 10, 1, 11, 2, 12, 3, 13]


def test_the_next_start_cell_is_preferred_once_the_window_has_moved_on() -> None:
    driven = failed_in_turn(2, 1, 0, good=range(3, 10), slots=30)
    deliver(driven, range(30, 40))
    driven.engine.dispatcher.slots = 1
    driven.tick(2.0)
    assert called(driven, 5) == [0, 20, 1, 21, 2]
    assert {*called(driven, 11)} == {22, *range(30, 40)}
    driven.tick()
    assert {10, 11, 12} <= {*called(driven, 6)}


# ---- more retries than slots


class Slots:
    """Slots that call one in a hundred records three times: it fails at once, then after 5 s."""

    def __init__(self, driven: Driven, call_s: float):
        self.driven = driven
        self.call_s = call_s
        self.ends: dict[Slice, tuple[float, float]] = {}
        """When calls end, and how long they take."""

    def _call(self, slice_: Slice) -> tuple[float, float]:
        bad = slice_.call.attempt > 1
        took_s = len(self.driven.claim(slice_)) * (SLOW_S if bad else self.call_s)
        return self.driven.now + took_s, took_s

    def run(self, step_s: float) -> None:
        """Go on for a moment: calls end, and others begin."""
        driven, free = self.driven, self.driven.engine.rules.slots
        for slice_, (ends_at, took_s) in list(self.ends.items()):
            if ends_at <= driven.now:
                del self.ends[slice_]
                offsets = [each.offset() for each in slice_.messages]
                fails = slice_.call.attempt < 3
                bad = [offset for offset in offsets if fails and not offset % 100]
                for message in slice_.messages:
                    if message.offset() in bad:
                        slice_.deviate().failed.append((message, failure()))
                driven.finish(slice_, took_s)
        for slice_ in [each for each in driven.out if each not in self.ends]:
            if len(self.ends) < free:
                self.ends[slice_] = self._call(slice_)
        driven.tick(step_s)


@pytest.mark.parametrize("written", ["backlog", "live"])
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_new_records_keep_their_rate_beside_more_retries_than_slots(
    ordering: str, written: str
) -> None:
    """New records alone would fit; they wait in Kafka until the worker is hungry."""
    call_s, lasts_s = 0.05, 30.0
    offered_per_s = 0.8 * 16 / call_s
    driven = Driven(slots=16, ordering=ordering, retry=spent_after(3))
    slots, began, fetched = Slots(driven, call_s), driven.now, 0
    while (passed_s := driven.now - began) < lasts_s:
        there = 10**6 if written == "backlog" else int(passed_s * offered_per_s)
        if wanted := min(there - fetched, driven.engine.appetite()):
            deliver(driven, range(fetched, fetched + wanted))
            fetched += wanted
        slots.run(call_s / 10)
    counters = driven.engine.counters
    assert counters.processed >= 0.85 * lasts_s * offered_per_s
    assert counters.retried >= 2 * lasts_s / SLOW_S - 4
