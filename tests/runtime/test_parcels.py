"""What a child leaves behind that dies between any two of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Condition
from typing import Any

import pytest

from tests.engine.support import ORDERS, Driven, failure, notes
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import ProcessDiedError
from window_consumer.model.produce import Produce
from window_consumer.runtime.pools.processes.carried_errors import carried
from window_consumer.runtime.pools.processes.child_batch import ToldOfBatch
from window_consumer.runtime.pools.processes.child_slice import Told
from window_consumer.runtime.pools.processes.remote_batch import BatchParcel
from window_consumer.runtime.pools.processes.remote_slice import Parcel
from window_consumer.runtime.pools.processes.shared_memory import (
    Berth,
    Harbour,
)

DIED = failure(ProcessDiedError("died"))


@pytest.fixture
def berth() -> Iterator[Berth]:
    harbour = Harbour()
    yield harbour.berths[0]
    harbour.close()


def slice_of(driven: Driven | None = None) -> Slice:
    driven = driven or Driven()
    return Slice(driven.engine.partitions[ORDERS], notes(0, 1, 2), range(3), 30)


def batch_in(berth: Berth) -> BatchParcel:
    slice_ = slice_of()
    slice_.is_batch = True
    parcel = BatchParcel(slice_, Condition(), lambda _parcel: None)
    parcel.go_to(berth, 1)
    return parcel


def parcel_in(berth: Berth, driven: Driven | None = None) -> Parcel:
    slice_ = slice_of(driven)
    parcel = Parcel(slice_, Condition(), lambda _parcel: None)
    parcel.go_to(berth, 1)
    return parcel


def take(berth: Berth, tokens: int, over: int) -> None:
    """Do what a child does on its way through a slice."""
    assert berth.take_whole()
    for _ in range(tokens):
        assert berth.tokens.take(False)
    for _ in range(over):
        berth.over.add()


@pytest.mark.parametrize(
    ("tokens", "over", "failed", "held"),
    [
        (1, 0, [0], [1, 2]),  # in its first call
        (1, 1, [], [1, 2]),  # after it
        (2, 1, [1], [2]),  # in its second call, or just about to make it
        (3, 3, [], []),
    ],
)
def test_only_a_record_that_had_begun_is_charged_and_nothing_is_forgotten(
    berth: Berth, tokens: int, over: int, failed: list[int], held: list[int]
) -> None:
    parcel = parcel_in(berth)
    take(berth, tokens, over)
    assert parcel.bereave(DIED)
    noted: Any = parcel.slice_.deviate()
    assert [message.offset() for message, _ in noted.failed] == failed
    assert [message.offset() for message in noted.held] == held


def told(place: int, error: BaseException | None = None, results: Any = ()) -> Told:
    return Told(1, place, None if error is None else carried(failure(error)), False, results, "")


def test_a_record_that_was_told_of_is_not_charged_for_the_death_that_followed(
    berth: Berth,
) -> None:
    parcel = parcel_in(berth)
    take(berth, 2, 1)
    parcel.note(told(1, ValueError("broken")))
    assert parcel.bereave(DIED)
    noted: Any = parcel.slice_.deviate()
    ((message, failed),) = noted.failed
    assert (message.offset(), type(failed.error)) == (1, ValueError)
    assert [message.offset() for message in noted.held] == [2]


@pytest.mark.parametrize(
    "first", [told(0, ValueError("broken")), told(0, results=[Produce("t", None, b"")])]
)
def test_a_record_that_waits_for_another_of_its_lane_is_not_charged(
    berth: Berth, first: Told
) -> None:
    parcel = parcel_in(berth, Driven(ordering="partition"))
    take(berth, 2, 1)
    parcel.note(first)
    assert parcel.bereave(DIED)
    noted: Any = parcel.slice_.deviate()
    assert ProcessDiedError not in {type(failed.error) for _, failed in noted.failed}
    assert [message.offset() for message in noted.held] == [1, 2]


@pytest.mark.parametrize(
    ("told_of", "over", "failed"),
    [
        ([], 0, [0, 1, 2]),  # within its call
        ([1], 0, [1]),  # after it, having told what became of it
        ([1], 1, [1]),
        ([], 1, []),
    ],
)
def test_of_a_batch_on_which_a_child_dies_all_fails_unless_it_was_over(
    berth: Berth, told_of: list[int], over: int, failed: list[int]
) -> None:
    parcel = batch_in(berth)
    take(berth, 1, over)
    for place in told_of:
        why = [carried(failure(ValueError("broken")))]
        parcel.note_batch(ToldOfBatch(1, why, [(place, 0)], [], [], []))
    assert parcel.bereave(DIED)
    noted: Any = parcel.slice_.deviate()
    assert [message.offset() for message, _ in noted.failed] == failed
    assert noted.held == []


def test_a_batch_that_was_not_begun_waits_again_and_one_that_was_taken_back_is_over(
    berth: Berth,
) -> None:
    parcel = batch_in(berth)
    take(berth, 0, 0)
    assert (parcel.left(), parcel.begun, parcel.is_halved) == (3, 0, False)
    assert not parcel.bereave(DIED)
    assert (parcel.waits, len(parcel.messages)) == (True, 3)
    again = batch_in(berth)
    assert [message.offset() for message in again.take_back()] == [0, 1, 2]
    assert (again.left(), again.take_back()) == (0, [])
    take(berth, 0, 0)
    assert not berth.tokens.take(False)  # the child finds nothing
    assert not again.bereave(DIED)
    assert again.messages == []


def test_a_slice_of_which_no_record_was_begun_waits_again_whole(berth: Berth) -> None:
    parcel = parcel_in(berth)
    take(berth, 0, 0)
    assert not parcel.bereave(DIED)
    assert parcel.waits
    assert [message.offset() for message in parcel.messages] == [0, 1, 2]
    assert parcel.slice_.deviations is None


def test_what_is_taken_back_leaves_the_claimed_records_with_the_child(berth: Berth) -> None:
    parcel = parcel_in(berth)
    take(berth, 1, 0)
    assert [message.offset() for message in parcel.take_back()] == [1, 2]
    assert (parcel.left(), parcel.take_back()) == (0, [])
    assert not berth.tokens.take(False)


def test_a_berth_that_another_slice_has_by_now_says_nothing_impossible(berth: Berth) -> None:
    parcel = parcel_in(berth)
    berth.load(1_000)
    assert parcel.left() == 3
