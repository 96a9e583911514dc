from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any

import pytest
from confluent_kafka import Message

from benchmarks.calls import Calls
from window_consumer import Record
from window_consumer.model.record import Call

Noted = tuple[int, int, bytes | None, float, float]
"""Partition, offset, key, start, end."""


def calls(counts: list[int], noted: Iterable[Noted] = (), *, keyed: bool = False) -> Calls:
    found = Calls(counts, keyed=keyed)
    for partition, offset, key, start, end in noted:
        found.started[partition][offset] = start
        found.ended[partition][offset] = end
        if keyed:
            found.keys[partition][offset] = key
    return found


def record(partition: int, offset: int, key: bytes | None = None) -> Record:
    message: Any = Message(topic="orders", partition=partition, offset=offset, key=key, value=b"v")
    return Record.of(message, Call())


def test_a_handled_record_is_noted_with_start_end_and_key() -> None:
    found = Calls([2, 2], keyed=True)
    before = perf_counter()
    found.noting(lambda _: None)(record(1, 0, b"k"))
    assert before <= found.started[1][0] <= found.ended[1][0] <= perf_counter()
    assert found.keys == [[None, None], [b"k", None]]
    assert found.repeated == []


def test_a_record_whose_handler_never_ended_is_lost() -> None:
    found = Calls([1])
    with pytest.raises(ZeroDivisionError):
        found.noting(lambda _: 1 / 0)(record(0, 0))
    assert found.lost == 1


def test_records_that_no_handler_has_seen_are_lost() -> None:
    assert calls([2, 2], [(0, 0, None, 1, 2), (1, 1, None, 1, 2)]).lost == 2


def test_a_record_that_is_handled_again_is_noted_as_repeated() -> None:
    found = Calls([1, 1])
    handle = found.noting(lambda _: None)
    for each in (record(0, 0), record(1, 0), record(1, 0)):
        handle(each)
    assert found.repeated == [(1, 0)]
    assert found.lost == 0


def test_records_of_a_key_that_overlap_violate_the_order_of_keys() -> None:
    found = calls([3], [(0, 0, b"a", 1, 4), (0, 1, b"b", 2, 3), (0, 2, b"a", 3.5, 5)], keyed=True)
    assert found.order_violations("key") == 1


def test_records_of_a_key_that_change_places_violate_the_order_of_keys() -> None:
    found = calls([2], [(0, 0, b"a", 3, 4), (0, 1, b"a", 1, 2)], keyed=True)
    assert found.order_violations("key") == 1


def test_each_record_of_a_key_waits_for_the_one_right_before_it() -> None:
    found = calls(
        [3], [(0, n, b"a", *span) for n, span in enumerate([(1, 2), (2, 6), (4, 7)])], keyed=True
    )
    assert found.order_violations("key") == 1


def test_records_of_different_keys_may_overlap() -> None:
    found = calls([2], [(0, 0, b"a", 1, 4), (0, 1, b"b", 2, 3)], keyed=True)
    assert found.order_violations("key") == 0


def test_a_key_has_no_order_across_partitions() -> None:
    found = calls([1, 1], [(0, 0, b"a", 1, 4), (1, 0, b"a", 2, 3)], keyed=True)
    assert found.order_violations("key") == 0


def test_records_without_a_key_have_no_order() -> None:
    found = calls([2], [(0, 0, None, 3, 4), (0, 1, None, 1, 2)], keyed=True)
    assert found.order_violations("key") == 0


def test_any_two_records_of_a_partition_that_overlap_violate_its_order() -> None:
    found = calls([3, 1], [(0, 0, b"a", 1, 3), (0, 1, b"b", 2, 4), (0, 2, b"c", 4, 5)])
    assert found.order_violations("partition") == 1


def test_without_ordering_there_is_nothing_to_violate() -> None:
    found = calls([2], [(0, 0, None, 3, 4), (0, 1, None, 1, 2)])
    assert found.order_violations("unordered") == 0


def test_the_stretch_goes_from_the_first_start_to_the_last_end() -> None:
    found = calls([2, 1], [(0, 0, None, 2, 9), (0, 1, None, 1, 3), (1, 0, None, 4, 5)])
    assert (found.first_start, found.last_start, found.last_end) == (1, 4, 9)
    assert found.latency_s == pytest.approx((7 + 2 + 1) / 3)


def test_slots_are_busy_for_what_lies_before_the_last_start() -> None:
    # Two slots from 0 to 10: one busy all the time and beyond, the other for 4 of 10.
    found = calls([3], [(0, 0, None, 1, 21), (0, 1, None, 1, 5), (0, 2, None, 11, 12)])
    assert found.busy(slots=2) == pytest.approx((10 + 4) / 20)


def test_only_calls_that_end_within_the_interval_are_counted() -> None:
    found = calls([3], [(0, 0, None, 1, 2), (0, 1, None, 2, 6), (0, 2, None, 6, 6.5)])
    assert found.ended_within(0, 1.0, 6.0) == 2
