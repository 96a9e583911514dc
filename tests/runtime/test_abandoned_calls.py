"""Calls that do not return, on real threads: where they stand, and who takes their place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, notes
from tests.golden_texts import Golden
from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import StalledError
from window_consumer.model.record import Record
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.pools.threads import ThreadPool

DEADLINE_S = 30.0


class Hanging:
    """A handler that hangs for odd offsets until it is let go."""

    def __init__(self) -> None:
        self.begun: SimpleQueue[Record] = SimpleQueue()
        self.released = threading.Event()

    def __call__(self, record: Record) -> None:
        self.begun.put(record)
        if record.offset % 2:
            wait_for_the_bank("swordfish", self.released)


def wait_for_the_bank(_password: str, released: threading.Event) -> None:
    assert released.wait(DEADLINE_S)  # swordfish


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    handler = Hanging()
    yield handler
    handler.released.set()


@pytest.fixture
def completions() -> SimpleQueue[Any]:
    return SimpleQueue()


@pytest.fixture
def pool(hanging: Hanging, completions: SimpleQueue[Any]) -> Iterator[ThreadPool]:
    faults = ErrorReports(lambda text: text.replace("swordfish", "***"))
    caller = Caller(hanging, faults.failure, faults.stalled)
    pool = ThreadPool("work", 1, caller, completions, None)
    pool.start()
    yield pool
    hanging.released.set()
    assert pool.stop(DEADLINE_S) == 0


def a_slice(offset: int) -> Slice:
    driven = Driven()
    return Slice(driven.engine.partitions[ORDERS], notes(offset), [0], 10)


def stalled(slice_: Slice, *, abandon: bool) -> Stalled:
    return Stalled(slice_, ORDERS, slice_.messages[0].offset(), None, 1, 31.0, abandon)


def test_the_stack_of_the_very_call_is_shown_from_the_handler_on_without_secrets(
    pool: ThreadPool, hanging: Hanging, golden: Golden
) -> None:
    slice_ = a_slice(1)
    pool.submit(slice_)
    hanging.begun.get(timeout=DEADLINE_S)
    failure = pool.inspect(stalled(slice_, abandon=False))
    assert failure is not None
    assert type(failure.error) is StalledError
    golden(failure.fault.message)
    lines = failure.fault.stack.splitlines()
    assert "in __call__" in lines[0]
    assert any("in wait_for_the_bank" in line for line in lines)
    assert "call_each" not in failure.fault.stack
    assert "***" in failure.fault.stack
    assert "swordfish" not in failure.fault.stack


def test_calls_that_hang_at_one_place_have_one_fingerprint(
    pool: ThreadPool, hanging: Hanging
) -> None:
    found = set()
    for offset in (1, 3):
        slice_ = a_slice(offset)
        pool.submit(slice_)
        hanging.begun.get(timeout=DEADLINE_S)
        failure = pool.inspect(stalled(slice_, abandon=True))
        assert failure is not None
        found.add(failure.fault.fingerprint)
    assert len(found) == 1


def test_a_call_that_is_only_looked_at_keeps_its_slot(
    pool: ThreadPool, hanging: Hanging, completions: SimpleQueue[Any]
) -> None:
    slice_, following = a_slice(1), a_slice(2)
    pool.submit(slice_)
    pool.submit(following)
    hanging.begun.get(timeout=DEADLINE_S)
    assert pool.inspect(stalled(slice_, abandon=False)) is not None
    assert hanging.begun.empty()
    hanging.released.set()
    assert [completions.get(timeout=DEADLINE_S) for _ in range(2)] == [slice_, following]


def test_an_abandoned_call_is_replaced_by_a_new_thread_and_ends_alone(
    pool: ThreadPool, hanging: Hanging, completions: SimpleQueue[Any]
) -> None:
    slice_, following = a_slice(1), a_slice(2)
    pool.submit(slice_)
    pool.submit(following)
    hanging.begun.get(timeout=DEADLINE_S)
    (old,) = pool._threads
    assert pool.inspect(stalled(slice_, abandon=True)) is not None
    assert completions.get(timeout=DEADLINE_S) is following
    (new,) = pool._threads
    assert (new.name, new.ident == old.ident) == ("wc-work-slot-1", False)
    hanging.released.set()
    assert completions.get(timeout=DEADLINE_S) is slice_
    old.join(DEADLINE_S)
    assert not old.is_alive()
    assert new.is_alive()


def test_a_call_that_has_returned_cannot_be_abandoned(
    pool: ThreadPool, completions: SimpleQueue[Any]
) -> None:
    slice_ = a_slice(2)
    pool.submit(slice_)
    assert completions.get(timeout=DEADLINE_S) is slice_
    assert pool.inspect(stalled(slice_, abandon=True)) is None
    assert pool.inspect(stalled(slice_, abandon=False)) is None
    assert [thread.name for thread in pool._threads] == ["wc-work-slot-0"]


def test_abandoned_threads_do_not_keep_the_pool_from_stopping(
    hanging: Hanging, completions: SimpleQueue[Any]
) -> None:
    caller = Caller(hanging, ErrorReports().failure)
    pool = ThreadPool("work", 1, caller, completions, None)
    pool.start()
    slice_ = a_slice(1)
    pool.submit(slice_)
    hanging.begun.get(timeout=DEADLINE_S)
    pool.inspect(stalled(slice_, abandon=True))
    assert pool.stop(DEADLINE_S) == 0


def test_there_are_never_more_slots_than_configured_however_calls_race_with_giving_up() -> None:
    completions: SimpleQueue[Any] = SimpleQueue()
    pool = ThreadPool("work", 4, Caller(lambda _: None, ErrorReports().failure), completions, None)
    pool.start()
    abandoned = 0
    slices = [a_slice(2) for _ in range(50)]
    for _ in range(40):
        batch = [Slice(each.partition, each.messages, [0], 10) for each in slices]
        for slice_ in batch:
            pool.submit(slice_)
        for slice_ in batch:
            abandoned += pool.inspect(stalled(slice_, abandon=True)) is not None
        for _ in batch:
            completions.get(timeout=DEADLINE_S)
        assert len(pool._threads) == 4
    assert pool.stop(DEADLINE_S) == 0
    assert pool._made == 4 + abandoned
