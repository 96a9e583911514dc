"""What a child leaves behind that dies between any two of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Condition
from typing import Any

import pytest

from tests.core.support import ORDERS, Driven, failure, notes
from window_consumer.core.slices import Slice
from window_consumer.model.errors import ProcessDiedError
from window_consumer.runtime.berths import Berth, Harbour
from window_consumer.runtime.parcels import Parcel

DIED = failure(ProcessDiedError("died"))


@pytest.fixture
def berth() -> Iterator[Berth]:
    harbour = Harbour()
    yield harbour.berths[0]
    harbour.close()


def parcel_in(berth: Berth) -> Parcel:
    slice_ = Slice(Driven().engine.partitions[ORDERS], notes(0, 1, 2), range(3), 30, ())
    parcel = Parcel(slice_, Condition(), lambda _parcel: None)
    parcel.go_to(None, berth, 1)  # type: ignore[arg-type] # only the berth matters here
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
