"""What a child leaves behind that dies between any two of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, failure, notes
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import ProcessDiedError
from window_consumer.model.produce import Produce
from window_consumer.runtime.pools.processes.child_batch import BatchReport
from window_consumer.runtime.pools.processes.child_failures import carried
from window_consumer.runtime.pools.processes.child_slice import RecordReport
from window_consumer.runtime.pools.processes.remote_batch import RemoteBatch
from window_consumer.runtime.pools.processes.remote_slice import RemoteSlice
from window_consumer.runtime.pools.processes.shared_memory import SharedSlot, SharedSlots

DIED = failure(ProcessDiedError("died"))


@pytest.fixture
def shared_slot() -> Iterator[SharedSlot]:
    slot_memory = SharedSlots()
    yield slot_memory.shared_slots[0]
    slot_memory.close()


def slice_of(driven: Driven | None = None) -> Slice:
    driven = driven or Driven()
    return Slice(driven.engine.partitions[ORDERS], notes(0, 1, 2), range(3), 30)


def batch_in(shared_slot: SharedSlot) -> RemoteBatch:
    slice_ = slice_of()
    slice_.is_batch = True
    remote_slice = RemoteBatch(slice_)
    remote_slice.enter(shared_slot, 1)
    return remote_slice


def remote_slice_in(shared_slot: SharedSlot, driven: Driven | None = None) -> RemoteSlice:
    slice_ = slice_of(driven)
    remote_slice = RemoteSlice(slice_)
    remote_slice.enter(shared_slot, 1)
    return remote_slice


def take(shared_slot: SharedSlot, tokens: int, over: int) -> None:
    """Do what a child does on its way through a slice."""
    assert shared_slot.take_whole()
    for _ in range(tokens):
        assert shared_slot.tokens.take(False)
    for _ in range(over):
        shared_slot.over.add()


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
    shared_slot: SharedSlot, tokens: int, over: int, failed: list[int], held: list[int]
) -> None:
    remote_slice = remote_slice_in(shared_slot)
    take(shared_slot, tokens, over)
    assert remote_slice.on_child_exit(DIED)
    noted: Any = remote_slice.slice_.deviate()
    assert [message.offset() for message, _ in noted.failed] == failed
    assert [message.offset() for message in noted.held] == held


def reported(place: int, error: BaseException | None = None, results: Any = ()) -> RecordReport:
    return RecordReport(
        1, place, None if error is None else carried(failure(error)), None, results, ""
    )


def test_a_record_that_was_reported_is_not_charged_for_the_death_that_followed(
    shared_slot: SharedSlot,
) -> None:
    remote_slice = remote_slice_in(shared_slot)
    take(shared_slot, 2, 1)
    remote_slice.record(reported(1, ValueError("broken")))
    assert remote_slice.on_child_exit(DIED)
    noted: Any = remote_slice.slice_.deviate()
    ((message, failed),) = noted.failed
    assert (message.offset(), type(failed.error)) == (1, ValueError)
    assert [message.offset() for message in noted.held] == [2]


@pytest.mark.parametrize(
    "first", [reported(0, ValueError("broken")), reported(0, results=[Produce("t", None, b"")])]
)
def test_a_record_that_waits_for_another_of_its_lane_is_not_charged(
    shared_slot: SharedSlot, first: RecordReport
) -> None:
    remote_slice = remote_slice_in(shared_slot, Driven(ordering="partition"))
    take(shared_slot, 2, 1)
    remote_slice.record(first)
    assert remote_slice.on_child_exit(DIED)
    noted: Any = remote_slice.slice_.deviate()
    assert ProcessDiedError not in {type(failed.error) for _, failed in noted.failed}
    assert [message.offset() for message in noted.held] == [1, 2]


@pytest.mark.parametrize(
    ("reported", "over", "failed"),
    [
        ([], 0, [0, 1, 2]),  # within its call
        ([1], 0, [1]),  # after it, having reported what became of it
        ([1], 1, [1]),
        ([], 1, []),
    ],
)
def test_of_a_batch_on_which_a_child_dies_all_fails_unless_it_was_over(
    shared_slot: SharedSlot, reported: list[int], over: int, failed: list[int]
) -> None:
    remote_slice = batch_in(shared_slot)
    take(shared_slot, 1, over)
    for place in reported:
        why = [carried(failure(ValueError("broken")))]
        remote_slice.record(BatchReport(1, why, [(place, 0)], [], [], []))
    assert remote_slice.on_child_exit(DIED)
    noted: Any = remote_slice.slice_.deviate()
    assert [message.offset() for message, _ in noted.failed] == failed
    assert noted.held == []


def test_a_batch_that_was_not_begun_waits_again_and_one_that_was_taken_back_is_over(
    shared_slot: SharedSlot,
) -> None:
    remote_slice = batch_in(shared_slot)
    take(shared_slot, 0, 0)
    assert (remote_slice.left(), remote_slice.begun, remote_slice.is_halved) == (3, 0, False)
    assert not remote_slice.on_child_exit(DIED)
    assert (remote_slice.waits, len(remote_slice.messages)) == (True, 3)
    again = batch_in(shared_slot)
    assert [message.offset() for message in again.take_back()] == [0, 1, 2]
    assert (again.left(), again.take_back()) == (0, [])
    take(shared_slot, 0, 0)
    assert not shared_slot.tokens.take(False)  # the child finds nothing
    assert not again.on_child_exit(DIED)
    assert again.messages == []


def test_a_slice_of_which_no_record_was_begun_waits_again_whole(shared_slot: SharedSlot) -> None:
    remote_slice = remote_slice_in(shared_slot)
    take(shared_slot, 0, 0)
    assert not remote_slice.on_child_exit(DIED)
    assert remote_slice.waits
    assert [message.offset() for message in remote_slice.messages] == [0, 1, 2]
    assert remote_slice.slice_.deviations is None


def test_what_is_taken_back_leaves_the_claimed_records_with_the_child(
    shared_slot: SharedSlot,
) -> None:
    remote_slice = remote_slice_in(shared_slot)
    take(shared_slot, 1, 0)
    assert [message.offset() for message in remote_slice.take_back()] == [1, 2]
    assert (remote_slice.left(), remote_slice.take_back()) == (0, [])
    assert not shared_slot.tokens.take(False)


def test_a_berth_that_another_slice_has_by_now_says_nothing_impossible(
    shared_slot: SharedSlot,
) -> None:
    remote_slice = remote_slice_in(shared_slot)
    shared_slot.load(1_000)
    assert remote_slice.left() == 3
