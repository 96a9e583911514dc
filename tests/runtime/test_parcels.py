"""What a child leaves behind that dies between any two of its steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Condition
from typing import Any

import pytest

from tests.core.support import ORDERS, Driven, failure, notes
from window_consumer.core.slices import Slice
from window_consumer.model.errors import ProcessDiedError
from window_consumer.runtime.berths import BEGUN, OVER, Berth, Harbour
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


def take(berth: Berth, tokens: int, begun: int, over: int) -> None:
    """Do what a child does on its way through a slice."""
    assert berth.take_whole()
    for _ in range(tokens):
        os.eventfd_read(berth.tokens)
    berth.words[BEGUN], berth.words[OVER] = begun, over


@pytest.mark.parametrize(
    ("tokens", "begun", "over", "failed", "held"),
    [
        (1, 1, 0, [0], [1, 2]),  # in its first call
        (1, 1, 1, [], [1, 2]),  # after it
        (2, 1, 1, [], [1, 2]),  # with the second record claimed and not begun
        (2, 2, 1, [1], [2]),
        (3, 3, 3, [], []),
    ],
)
def test_only_a_record_that_had_begun_is_charged_and_nothing_is_forgotten(
    berth: Berth, tokens: int, begun: int, over: int, failed: list[int], held: list[int]
) -> None:
    parcel = parcel_in(berth)
    take(berth, tokens, begun, over)
    assert parcel.bereave(DIED)
    noted: Any = parcel.slice_.deviate()
    assert [message.offset() for message, _ in noted.failed] == failed
    assert [message.offset() for message in noted.held] == held


def test_a_slice_that_was_claimed_and_not_begun_waits_again_whole(berth: Berth) -> None:
    parcel = parcel_in(berth)
    take(berth, 1, 0, 0)
    assert not parcel.bereave(DIED)
    assert parcel.waits
    assert [message.offset() for message in parcel.messages] == [0, 1, 2]
    assert parcel.slice_.deviations is None


def test_what_is_taken_back_leaves_the_claimed_records_with_the_child(berth: Berth) -> None:
    parcel = parcel_in(berth)
    take(berth, 1, 1, 0)
    assert [message.offset() for message in parcel.take_back()] == [1, 2]
    assert (parcel.left(), parcel.take_back()) == (0, [])
    with pytest.raises(BlockingIOError):
        os.eventfd_read(berth.tokens)
