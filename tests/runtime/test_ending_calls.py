"""Coroutines that do not return: where they stand, and what ends them."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from tests.golden_texts import Golden
from tests.logged import fields_of
from tests.runtime.coroutines import DEADLINE_S, Coroutines, failed, stalled
from tests.waiting import wait_until
from window_consumer.model.errors import StalledError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Record

pytestmark = pytest.mark.usefixtures("each_loop")


class Hanging:
    """A handler that waits for what does not come, in a way that the test chooses."""

    def __init__(self, hang: Any):
        self._hang = hang
        self.begun = threading.Semaphore(0)
        self.records: list[Record] = []

    async def __call__(self, record: Record) -> None:
        self.records.append(record)
        self.begun.release()
        await self._hang(record)


async def wait_for_the_bank(_password: str) -> None:
    await asyncio.Event().wait()  # swordfish


def begun(coroutines: Coroutines, hanging: Hanging, *offsets: int) -> Any:
    """Submit a slice and wait until its first call waits for something."""
    slice_ = coroutines.submit(*offsets)
    assert hanging.begun.acquire(timeout=DEADLINE_S)
    coroutines.turn()
    return slice_


async def _in_a_group(_record: Record) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        group.create_task(wait_for_the_bank("swordfish"))


async def _gathered(_record: Record) -> None:
    await asyncio.gather(asyncio.sleep(0), wait_for_the_bank("swordfish"))


async def _within_a_timeout(_record: Record) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.create_task(wait_for_the_bank("swordfish"))


async def _itself(_record: Record) -> None:
    await wait_for_the_bank("swordfish")


@pytest.mark.parametrize("hang", [_itself, _in_a_group, _gathered, _within_a_timeout])
def test_the_coroutines_own_stack_is_shown_from_the_handler_on_without_secrets(hang: Any) -> None:
    hanging = Hanging(hang)
    with Coroutines(hanging) as coroutines:
        slice_ = begun(coroutines, hanging, 1)
        failure = coroutines.pool.inspect(stalled(slice_))
        assert failure is not None
        assert type(failure.error) is StalledError
        stack = failure.fault.stack
        assert stack.index(", in __call__") < stack.index(f", in {hang.__name__}")
        assert stack.index(f", in {hang.__name__}") < stack.index("Event().wait()  # ***")
        assert "window_consumer/runtime" not in stack


def test_a_call_that_is_ended_is_cancelled_and_fails_with_what_was_seen_of_it() -> None:
    cleaned_up: list[bool] = []

    async def hang(record: Record) -> None:
        try:
            await wait_for_the_bank("swordfish")
        finally:
            cleaned_up.append(record.cancelled)

    hanging = Hanging(hang)
    with Coroutines(hanging) as coroutines:
        slice_ = begun(coroutines, hanging, 1)
        failure = coroutines.pool.inspect(stalled(slice_, end=True))
        assert coroutines.back() is slice_
        assert failure is not None
        assert failed(slice_) == {1: failure.error}
        assert cleaned_up == [True]
        assert slice_.elapsed > 0


async def _returns(_record: Record) -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


async def _raises_something_else(_record: Record) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ValueError from None


async def _forgets_that_it_was_cancelled(_record: Record) -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


@pytest.mark.parametrize("hang", [_returns, _raises_something_else, _forgets_that_it_was_cancelled])
def test_a_call_that_was_ended_is_never_a_success_whatever_it_makes_of_it(hang: Any) -> None:
    hanging = Hanging(hang)
    with Coroutines(hanging, slots=1) as coroutines:
        slice_ = begun(coroutines, hanging, 1)
        coroutines.pool.inspect(stalled(slice_, end=True))
        assert coroutines.back() is slice_
        assert {1: StalledError} == {k: type(v) for k, v in failed(slice_).items()}
        second = begun(coroutines, hanging, 2)
        assert coroutines.pool.interrupt([second])
        assert coroutines.back() is second
        assert [m.offset() for m in second.deviate().held] == [2]
        assert failed(second) == {}


def test_a_call_that_has_just_returned_is_not_ended() -> None:
    async def handler(_record: Record) -> None: ...

    with Coroutines(handler) as coroutines:
        slice_ = coroutines.run(1)
        assert coroutines.pool.inspect(stalled(slice_, end=True)) is None
        assert coroutines.pool.interrupt([slice_])
        assert coroutines.run(2).plain
    assert slice_.plain


def test_a_call_that_refuses_to_end_is_abandoned_and_its_slot_replaced() -> None:
    released = asyncio.Event()

    async def hang(record: Record) -> None:
        while record.offset == 1 and not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    hanging = Hanging(hang)
    with Coroutines(hanging, slots=1) as coroutines:
        slice_ = begun(coroutines, hanging, 1)
        behind = coroutines.submit(2)
        assert coroutines.pool.inspect(stalled(slice_, end=True)) is not None
        coroutines.turn()
        assert coroutines.completions.empty()
        assert coroutines.pool.inspect(stalled(slice_, abandon=True)) is not None
        assert coroutines.back() is behind
        assert coroutines.run(3).plain
        coroutines.loop.call(released.set)
        assert coroutines.back() is slice_
        assert coroutines.run(4).plain


def test_a_call_that_blocks_the_loop_is_said_to_and_shown_where_it_stands(golden: Golden) -> None:
    released = threading.Event()

    async def hang(record: Record) -> None:
        if record.offset == 1:
            await asyncio.sleep(0.05)
            assert released.wait(DEADLINE_S)  # swordfish
        await asyncio.sleep(DEADLINE_S)

    hanging = Hanging(hang)
    with Coroutines(hanging) as coroutines:
        victim = begun(coroutines, hanging, 0)
        blocker = coroutines.submit(1)
        assert hanging.begun.acquire(timeout=DEADLINE_S)
        wait_until(lambda: coroutines.loop.is_blocked)
        try:
            assert coroutines.pool.inspect(stalled(victim, end=True)) is None
            failure = coroutines.pool.inspect(stalled(blocker))
            assert failure is not None
            golden(failure.fault.message)
            assert "released.wait(DEADLINE_S)  # ***" in failure.fault.stack
            assert "window_consumer/runtime" not in failure.fault.stack
        finally:
            released.set()
        wait_until(lambda: not coroutines.loop.is_blocked)
        failure = coroutines.pool.inspect(stalled(victim))
        assert failure is not None
        assert "blocks" not in failure.fault.message


def test_what_blocks_the_loop_without_being_a_call_is_written_down_once(
    caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    released = threading.Event()

    async def child() -> None:
        assert released.wait(DEADLINE_S)

    async def hang(_record: Record) -> None:
        await asyncio.create_task(child(), name="the child")

    hanging = Hanging(hang)
    with Coroutines(hanging) as coroutines:
        slice_ = coroutines.submit(1)
        wait_until(lambda: coroutines.loop.is_blocked)
        try:
            for _ in range(2):
                assert coroutines.pool.inspect(stalled(slice_, end=True)) is None
        finally:
            released.set()
        assert coroutines.back().plain
    args = fields_of(caplog, LogEvent.LOOP_BLOCKED)["args"]
    assert args[0] == "work"
    golden(args[1])
    assert "assert released.wait(DEADLINE_S)" in args[2]


def test_a_loop_that_is_blocked_for_ever_does_not_hold_up_the_end() -> None:
    released = threading.Event()

    async def handler(_record: Record) -> None:
        assert released.wait(DEADLINE_S)

    coroutines = Coroutines(handler)
    coroutines.pool.start()
    coroutines.submit(1)
    assert coroutines.pool.stop(0.05) == 1
    released.set()
    assert coroutines.pool.stop(DEADLINE_S) == 0


def test_what_calls_have_left_behind_is_cancelled_when_the_loop_ends() -> None:
    ended: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(DEADLINE_S)
        finally:
            ended.append("child")

    children: list[asyncio.Task[None]] = []

    async def handler(_record: Record) -> None:
        children.append(asyncio.create_task(child()))
        await asyncio.sleep(0)

    with Coroutines(handler) as coroutines:
        assert coroutines.run(1).plain
    assert ended == ["child"]
    assert not coroutines.loop.thread.is_alive()
