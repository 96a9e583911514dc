"""Coroutines as handlers, on a real event loop: what each call can rely on."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from time import perf_counter
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, notes
from tests.logged import events_in
from tests.runtime.coroutines import DEADLINE_S, Coroutines, failed
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import Fatal, Skip
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Record
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.coroutine_calls import CallTask, apart, call_each
from window_consumer.runtime.context import RecordContext, current_record
from window_consumer.runtime.error_report import ErrorReports

pytestmark = pytest.mark.usefixtures("each_loop")

SEEN: ContextVar[int | None] = ContextVar("seen", default=None)


def test_every_record_is_called_once_in_order_on_the_loops_thread() -> None:
    seen: list[tuple[int, str, Any]] = []

    async def handler(record: Record) -> None:
        seen.append((record.offset, threading.current_thread().name, record.state))
        if record.offset % 2:
            await asyncio.sleep(0)

    with Coroutines(handler, state="pool") as coroutines:
        slice_ = coroutines.run(0, 1, 2, 3)
    assert seen == [(offset, "wc-work-loop", "pool") for offset in range(4)]
    assert slice_.plain


class Gate:
    """A handler whose calls wait until the test lets them go on; it counts those at once."""

    def __init__(self) -> None:
        self.most = 0
        self._wanted = self._running = 0
        self._reached = threading.Event()
        self._open = asyncio.Event()

    async def __call__(self, _record: Record) -> None:
        self._running += 1
        self.most = max(self.most, self._running)
        if self._running == self._wanted:
            self._reached.set()
        await self._open.wait()
        await asyncio.sleep(0)
        self._running -= 1

    def passes(self, coroutines: Coroutines, slices: int, at_once: int) -> None:
        """Let slices run, of which so many calls have to wait together before any goes on."""
        self.most, self._wanted = 0, at_once
        self._reached.clear()
        self._open.clear()
        submitted = [coroutines.submit(offset) for offset in range(slices)]
        assert self._reached.wait(DEADLINE_S)
        coroutines.turn()
        coroutines.loop.call(self._open.set)
        assert {coroutines.back() for _ in submitted} == set(submitted)


def test_as_many_calls_wait_at_once_as_there_are_slots_and_no_more() -> None:
    gate = Gate()
    with Coroutines(gate, slots=50) as coroutines:
        gate.passes(coroutines, slices=200, at_once=50)
    assert gate.most == 50


def test_fewer_slots_can_be_used_for_a_while() -> None:
    gate = Gate()
    with Coroutines(gate, slots=20) as coroutines:
        for slots in (20, 3, 8):
            coroutines.pool.use(slots)
            coroutines.turn()
            gate.passes(coroutines, slices=60, at_once=slots)
            assert gate.most == slots


def test_fewer_slots_can_be_used_from_the_start_on() -> None:
    gate = Gate()
    coroutines = Coroutines(gate, slots=20)
    coroutines.pool.use(3)
    with coroutines:
        for slots in (3, 8):
            coroutines.pool.use(slots)
            coroutines.turn()
            gate.passes(coroutines, slices=60, at_once=slots)
            assert gate.most == slots


def test_a_slot_too_many_is_given_back_by_who_has_it() -> None:
    begun: list[int] = []
    go_on = asyncio.Event()

    async def handler(record: Record) -> None:
        begun.append(record.offset)
        await (go_on.wait() if record.offset < 4 else asyncio.sleep(0.001))

    with Coroutines(handler, slots=4) as coroutines:
        for offset in range(10):
            coroutines.submit(offset)
        coroutines.turn()
        coroutines.pool.use(1)
        coroutines.turn()
        coroutines.loop.call(go_on.set)
        assert len({coroutines.back() for _ in range(10)}) == 10
    assert begun == list(range(10))


def test_ten_thousand_calls_can_wait_at_once() -> None:
    begun: list[int] = []
    go_on = asyncio.Event()

    async def handler(record: Record) -> None:
        begun.append(record.offset)
        if len(begun) == 10_000:
            go_on.set()
        await go_on.wait()

    with Coroutines(handler, slots=10_000) as coroutines:
        for offset in range(10_000):
            coroutines.submit(offset)
        back = [coroutines.back() for _ in range(10_000)]
    assert len(set(back)) == 10_000


def test_a_slice_waits_for_no_other_ones_slow_call() -> None:
    slow = asyncio.Event()

    async def handler(record: Record) -> None:
        if record.offset == 0:
            await slow.wait()

    with Coroutines(handler, slots=2) as coroutines:
        first = coroutines.submit(0)
        others = [coroutines.submit(offset) for offset in range(1, 50)]
        assert [coroutines.back() for _ in others] == others
        coroutines.loop.call(slow.set)
        assert coroutines.back() is first


def test_calls_that_never_wait_give_the_loop_to_those_that_do() -> None:
    submitted = threading.Event()
    seen: list[int] = []

    async def handler(record: Record) -> None:
        if record.offset == 0:
            assert submitted.wait(DEADLINE_S)
            for _ in range(10):
                await asyncio.sleep(0)
        seen.append(record.offset)

    with Coroutines(handler) as coroutines:
        slices = [coroutines.submit(offset) for offset in range(100)]
        submitted.set()
        assert {coroutines.back() for _ in slices} == set(slices)
    assert seen.index(0) < 50


class ComesLate(deque[Slice]):
    """Waiting slices, of which one comes right after a slot has seen that there is none."""

    def __init__(self, submit: Callable[[], object]):
        super().__init__()
        self._submit = [submit]

    def __bool__(self) -> bool:
        is_there = len(self) > 0
        if not is_there and self._submit:
            self._submit.pop()()
        return is_there


def test_a_slice_that_comes_while_a_slot_falls_asleep_is_not_forgotten() -> None:
    async def handler(_record: Record) -> None: ...

    coroutines = Coroutines(handler, slots=1)
    coroutines.pool._waiting = ComesLate(lambda: coroutines.submit(2))
    with coroutines:
        coroutines.submit(1)
        assert [coroutines.back().messages[0].offset() for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    "error",
    [ValueError(), TimeoutError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Fatal()],
)
def test_whatever_a_handler_raises_is_its_records_failure(error: Any, *, waits: bool) -> None:
    async def handler(record: Record) -> None:
        if waits:
            await asyncio.sleep(0)
        if record.offset == 1:
            raise error

    with Coroutines(handler) as coroutines:
        assert failed(coroutines.run(0, 1, 2)) == {1: error}
        assert coroutines.run(3).plain


def test_what_is_raised_before_there_is_a_coroutine_is_a_failure_too() -> None:
    def handler(_record: Record) -> Awaitable[None]:
        raise Skip

    with Coroutines(handler) as coroutines:
        slice_ = coroutines.run(0, 1)
    assert [message.offset() for message, _ in slice_.deviate().skipped] == [0, 1]


def test_a_plain_function_that_calls_a_coroutine_function_is_awaited() -> None:
    done: list[int] = []

    async def charge(record: Record) -> None:
        await asyncio.sleep(0)
        done.append(record.offset)

    class Later:
        def __init__(self, coroutine: Coroutine[Any, Any, None]):
            self.coroutine = coroutine

        def __await__(self) -> Any:
            return self.coroutine.__await__()

    with Coroutines(lambda record: Later(charge(record))) as coroutines:
        assert coroutines.run(0, 1).plain
    assert done == [0, 1]


def test_a_failures_stack_begins_with_the_handler() -> None:
    async def handler(record: Record) -> None:
        await deep_below(record)

    async def deep_below(record: Record) -> None:
        if record.offset:
            await asyncio.sleep(0)
        raise ValueError

    with Coroutines(handler) as coroutines:
        for offset in (0, 1):
            ((_, failure),) = coroutines.run(offset).deviate().failed
            stack = failure.fault.stack
            assert stack.index(", in handler") < stack.index(", in deep_below")
            assert "window_consumer/runtime" not in stack
            assert failure.error.__traceback__ is None


def test_after_a_failure_later_records_of_its_lane_are_held_back() -> None:
    called: list[int] = []

    async def handler(record: Record) -> None:
        called.append(record.offset)
        await asyncio.sleep(0)
        if record.offset in (0, 3):
            raise ValueError

    with Coroutines(handler) as coroutines:
        keys = [b"a", b"b", b"a", b"b", b"c", b"b", None]
        noted = coroutines.run(*range(7), ordering="key", keys=keys).deviate()
    assert called == [0, 1, 3, 4, 6]
    assert [m.offset() for m in noted.held] == [2, 5]
    assert [m.offset() for m, _ in noted.failed] == [0, 3]


@pytest.mark.parametrize("waits", [False, True])
def test_context_variables_of_a_call_are_not_seen_by_the_next(*, waits: bool) -> None:
    seen: list[int | None] = []

    async def handler(record: Record) -> None:
        seen.append(SEEN.get())
        SEEN.set(record.offset)
        if waits:
            await asyncio.sleep(0)
        assert SEEN.get() == record.offset

    with Coroutines(handler, slots=1) as coroutines:
        slice_ = coroutines.run(0, 1, 2)
    assert slice_.plain
    assert seen == [None, None, None]


@pytest.mark.parametrize("waits", [False, True])
def test_context_variables_of_a_batch_are_not_seen_by_the_next(*, waits: bool) -> None:
    seen: list[int | None] = []

    async def handler(records: Any) -> None:
        seen.append(SEEN.get())
        SEEN.set(records[0].offset)
        if waits:
            await asyncio.sleep(0)

    with Coroutines(handler, slots=1) as coroutines:
        for offset in range(3):
            assert coroutines.run(offset, batch=True).plain
        assert coroutines.pool._is_apart
    assert seen == [None, None, None]


def test_a_task_goes_on_with_the_next_call_unless_one_has_left_something_in_its_context() -> None:
    tasks: list[object] = []

    async def handler(record: Record) -> None:
        tasks.append(asyncio.current_task())
        token = SEEN.set(record.offset)
        await asyncio.sleep(0)
        if record.offset != 2:
            SEEN.reset(token)

    with Coroutines(handler, slots=1) as coroutines:
        assert coroutines.run(*range(6)).plain
    assert [tasks.index(task) for task in tasks] == [0, 0, 0, 3, 3, 3]


def test_a_handler_that_leaves_something_behind_costs_one_task_and_not_one_a_call() -> None:
    tasks: list[object] = []

    async def handler(record: Record) -> None:
        tasks.append(asyncio.current_task())
        assert SEEN.get() is None
        SEEN.set(record.offset)
        await asyncio.sleep(0)
        assert SEEN.get() == record.offset
        if record.offset == 3:
            raise ValueError

    with Coroutines(handler, slots=1) as coroutines:
        assert list(failed(coroutines.run(*range(6)))) == [3]
    assert [tasks.index(task) for task in tasks] == [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_call_whose_task_is_thrown_away_neither_fails_nor_lets_the_next_begin(
    *, is_apart: bool
) -> None:
    begun: list[int] = []
    over: list[int] = []

    async def handler(record: Record) -> None:
        begun.append(record.offset)
        try:
            await asyncio.sleep(DEADLINE_S)
        finally:
            over.append(record.offset)

    async def throw_away() -> Slice:
        loop = asyncio.get_running_loop()
        task = CallTask(asyncio.sleep(0), loop=loop)
        slice_ = Slice(Driven().engine.partitions[ORDERS], notes(0, 1), range(2), 20)
        called = apart(handler) if is_apart else handler
        calls = call_each(slice_, Caller(called, ErrorReports().failure), task)
        calls.send(None)
        calls.close()
        await task
        return slice_

    slice_ = asyncio.run(throw_away())
    assert (begun, over, slice_.deviations) == ([0], [0], None)


def test_a_task_that_a_call_starts_is_about_the_same_record_also_when_it_outlives_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("shop")
    children: list[asyncio.Task[None]] = []
    go_on = asyncio.Event()
    context = RecordContext()
    caplog.handler.addFilter(context)

    async def child(record: Record) -> None:
        await go_on.wait()
        assert current_record() is record
        log.warning("later")

    async def handler(record: Record) -> None:
        assert current_record() is record
        children.append(asyncio.create_task(child(record)))
        if record.offset == 1:
            await asyncio.sleep(0)
        if record.offset == 2:
            go_on.set()
            await asyncio.gather(*children)

    try:
        with Coroutines(handler, slots=1) as coroutines:
            assert failed(coroutines.run(0, 1, 2)) == {}
    finally:
        caplog.handler.removeFilter(context)  # other tests have the same handler
    assert {getattr(record, "offset", None) for record in caplog.records} == {0, 1, 2}


def test_the_tasks_name_is_that_of_the_record_from_the_first_step_on() -> None:
    names: list[str] = []

    async def handler(_record: Record) -> None:
        for _ in range(2):
            task = asyncio.current_task()
            assert task is not None
            names.append(task.get_name())
            assert task.get_name() in repr(task)
            await asyncio.sleep(0)

    with Coroutines(handler) as coroutines:
        assert coroutines.run(1234, 1235).plain
    assert names == ["wc-work orders[0]@1234"] * 2 + ["wc-work orders[0]@1235"] * 2


def test_timeouts_and_task_groups_work_from_the_first_step_on() -> None:
    done: list[int] = []

    async def slow(record: Record) -> None:
        await asyncio.sleep(DEADLINE_S if record.offset == 1 else 0)
        done.append(record.offset)

    async def handler(record: Record) -> None:
        async with asyncio.timeout(0.01), asyncio.TaskGroup() as group:
            group.create_task(slow(record))
            group.create_task(slow(record))

    with Coroutines(handler, slots=1) as coroutines:
        errors = failed(coroutines.run(0, 1, 2))
    assert [type(error) for error in errors.values()] == [TimeoutError]
    assert (list(errors), done) == ([1], [0, 0, 2, 2])


@pytest.mark.parametrize("offset", range(3))
def test_system_exit_of_a_task_does_not_end_the_loop(
    offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def leaves() -> None:
        raise SystemExit(3)

    async def handler(record: Record) -> None:
        if record.offset == offset:
            await asyncio.create_task(leaves())
        await asyncio.sleep(0)

    with Coroutines(handler, slots=1) as coroutines:
        errors = failed(coroutines.run(0, 1, 2))
    assert [type(error) for error in errors.values()] == [SystemExit]
    assert LogEvent.TASK_ESCAPED in events_in(caplog)


def test_who_stops_the_loop_stops_nothing() -> None:
    async def handler(_record: Record) -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)

    with Coroutines(handler) as coroutines:
        assert coroutines.run(0, 1, 2).plain


def test_a_call_that_cancels_itself_has_failed_and_no_other_one() -> None:
    async def handler(record: Record) -> None:
        task = asyncio.current_task()
        assert task is not None
        if record.offset == 1:
            task.cancel()
        if record.offset == 3:
            raise asyncio.CancelledError
        if record.offset == 5:
            task.cancel()
            return
        await asyncio.sleep(0)

    with Coroutines(handler, slots=1) as coroutines:
        errors = failed(coroutines.run(*range(8)))
        assert coroutines.run(8, 9).plain
    assert {offset: type(error) for offset, error in errors.items()} == {
        1: asyncio.CancelledError,
        3: asyncio.CancelledError,
    }


def test_who_cancels_all_tasks_fails_the_calls_that_run_and_nothing_else() -> None:
    waiting = asyncio.Semaphore(0)

    async def handler(record: Record) -> None:
        if record.offset == 9:
            await waiting.acquire()
            await waiting.acquire()
            for task in asyncio.all_tasks():
                task.cancel()
        if record.offset < 2:
            waiting.release()
            await asyncio.sleep(DEADLINE_S)

    with Coroutines(handler, slots=8) as coroutines:
        slices = [coroutines.submit(offset) for offset in (0, 1, 9)]
        assert {coroutines.back() for _ in slices} == set(slices)
        assert [len(failed(each)) for each in slices[:2]] == [1, 1]
        many = [coroutines.submit(offset) for offset in range(10, 40)]
        assert {coroutines.back() for _ in many} == set(many)
        assert all(each.plain for each in many)


def test_each_record_is_claimed_once_while_others_take_back() -> None:
    """The loop runs slices while another thread takes their rest back and deals it out again."""
    records = 20_000
    called: Counter[int] = Counter()

    async def handler(record: Record) -> None:
        called[record.offset] += 1
        if record.offset % 7 == 0:
            await asyncio.sleep(0)

    random_ = random.Random(1)
    partition = Driven().engine.partitions[ORDERS]
    messages = notes(*range(records))
    out: list[Slice] = []
    accounted: list[int] = []
    with Coroutines(handler) as coroutines:

        def deal(part: list[Any], seqs: Any) -> None:
            slice_ = Slice(partition, part, seqs, 0)
            out.append(slice_)
            coroutines.pool.submit(slice_)

        for start in range(0, records, 100):
            deal(messages[start : start + 100], range(start, start + 100))
        deadline = perf_counter() + 60
        while out and perf_counter() < deadline:
            past, unclaimed, seqs = random_.choice(out).split()
            accounted.extend(past.seqs)
            for start in range(0, len(unclaimed), 7):
                deal(unclaimed[start : start + 7], seqs[start : start + 7])
            while not coroutines.completions.empty():
                done = coroutines.completions.get()
                accounted.extend(done.seqs)
                out.remove(done)
    assert sorted(accounted) == list(range(records))
    assert set(called.values()) == {1}
    assert len(called) == records


def test_the_loop_is_the_one_that_is_meant(each_loop: str) -> None:
    loops: list[str] = []

    async def handler(_record: Record) -> None:
        loops.append(type(asyncio.get_running_loop()).__module__.partition(".")[0])

    with Coroutines(handler) as coroutines:
        coroutines.run(0)
    assert loops == [each_loop]
