"""Calls of batch handlers, on threads and on a loop: claimed whole, noted record by record."""

from __future__ import annotations

import asyncio
import logging
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, notes
from tests.runtime.coroutines import Coroutines, failed, stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import PartialFailure, StalledError
from window_consumer.model.record import Record
from window_consumer.runtime.calls.batch_calls import MOST_SPARES, call_batch
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.context import RecordContext, Slot, current_record
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.pools.threads import ThreadPool

DEADLINE_S = 30.0


def a_batch(*offsets: int) -> Slice:
    partition = Driven().engine.partitions[ORDERS]
    slice_ = Slice(partition, notes(*offsets), range(len(offsets)), 10 * len(offsets))
    slice_.is_batch = True
    return slice_


def on_a_thread(handler: Any, slice_: Slice) -> Slice:
    completions: SimpleQueue[Slice] = SimpleQueue()
    faults = ErrorReports()
    pool = ThreadPool("work", 1, Caller(handler, faults.failure), completions, "state")
    pool.start()
    pool.submit(slice_)
    back = completions.get(timeout=DEADLINE_S)
    assert pool.stop(DEADLINE_S) == 0
    return back


def on_a_loop(handler: Any, slice_: Slice) -> Slice:
    async def coroutine(records: list[Record]) -> None:
        handler(records)

    with Coroutines(coroutine) as pool:  # type: ignore[arg-type] # a batch handler
        pool.pool.submit(slice_)
        return pool.back()


def offsets_of(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


def test_a_thread_calls_a_batch_handler_once_with_all_records() -> None:
    seen: list[Any] = []

    def store(records: list[Record]) -> None:
        seen.append((offsets_of(records), records[0].state, threading.current_thread().name))

    slice_ = on_a_thread(store, a_batch(7, 8, 9))
    assert seen == [([7, 8, 9], "state", "wc-work-slot-0")]
    assert slice_.plain
    assert slice_.elapsed > 0


def in_turn(handler: Any, *slices: Slice) -> Slot:
    """Call a handler for one batch after the other in one slot."""
    slot = Slot()
    for slice_ in slices:
        call_batch(slice_, Caller(handler, ErrorReports().failure), slot)
    return slot


def test_a_record_that_the_handler_keeps_stays_what_it_was() -> None:
    kept: list[Record] = []
    slot = in_turn(lambda records: kept.append(records[1]), a_batch(1, 2), a_batch(3, 4, 5))
    assert offsets_of(kept) == [2, 4]
    assert slot.spares == []


def test_a_list_that_the_handler_keeps_stays_what_it_was() -> None:
    kept: list[list[Record]] = []
    in_turn(kept.append, a_batch(1, 2), a_batch(3))
    assert list(map(offsets_of, kept)) == [[1, 2], [3]]


def test_records_that_nobody_keeps_are_used_again_and_hold_no_message_meanwhile() -> None:
    seen: list[list[Any]] = []

    def store(records: list[Record]) -> None:
        seen.append([*offsets_of(records), *map(id, records)])
        records.clear()  # the list is the handler's

    slot = in_turn(store, a_batch(1, 2), a_batch(3), a_batch(4, 5, 6))
    assert [each[: len(each) // 2] for each in seen] == [[1, 2], [3], [4, 5, 6]]
    assert seen[1][1] == seen[0][2]
    assert len({*seen[2][3:], *seen[0][2:]}) == 3
    assert [each._message for each in slot.spares] == [None] * 3


def test_a_slot_does_not_keep_more_and_more_records() -> None:
    slot = Slot()
    slot.spares += [Record() for _ in range(MOST_SPARES)]
    slice_ = a_batch(1)
    call_batch(slice_, Caller(lambda _records: None, ErrorReports().failure), slot)
    assert len(slot.spares) == MOST_SPARES
    many = a_batch(*range(MOST_SPARES + 1))
    call_batch(many, Caller(lambda _records: None, ErrorReports().failure), slot)
    assert len(slot.spares) <= MOST_SPARES


@pytest.mark.parametrize("run", [on_a_thread, on_a_loop])
def test_records_that_the_handler_took_off_its_list_fail_with_the_others(run: Any) -> None:
    def store(records: list[Record]) -> None:
        while records:
            if records.pop().offset == 8:
                raise ZeroDivisionError

    slice_ = a_batch(7, 8, 9)
    run(store, slice_)
    assert [message.offset() for message, _ in slice_.deviate().failed] == [7, 8, 9]


def test_nobody_can_take_a_part_of_a_batch_that_runs() -> None:
    taken: list[Any] = []

    def store(_records: list[Record]) -> None:
        taken.append(slice_.split()[1])
        taken.append([m.offset() for m in slice_.messages])

    slice_ = a_batch(7, 8, 9)
    on_a_thread(store, slice_)
    assert taken == [[], [7, 8, 9]]


def test_a_batch_that_was_taken_back_is_not_called() -> None:
    seen: list[Any] = []
    slice_ = a_batch(7, 8)
    slice_.split()
    on_a_thread(seen.append, slice_)
    assert seen == []


def test_one_exception_is_put_into_words_once_for_all_of_its_records() -> None:
    def store(_records: list[Record]) -> None:
        raise ConnectionError("away")

    slice_ = on_a_thread(store, a_batch(7, 8, 9))
    failures = [failure for _, failure in slice_.deviate().failed]
    assert len(failures) == 3
    assert len({id(failure) for failure in failures}) == 1
    assert "in store" in failures[0].fault.stack
    assert "claim_all" not in failures[0].fault.stack
    assert "/batch_calls.py" not in failures[0].fault.stack


def test_log_lines_of_a_batch_show_its_first_record(caplog: Any) -> None:
    log = logging.getLogger("batches")

    def store(_records: list[Record]) -> None:
        assert current_record() is None
        line = log.makeRecord("batches", logging.INFO, "f", 1, "storing", (), None)
        RecordContext().filter(line)
        caplog.records.append(line)

    on_a_thread(store, a_batch(7, 8))
    line = caplog.records[-1]
    assert (line.topic, line.partition, line.offset) == ("orders", 0, 7)


def run(handler: Any, *offsets: int) -> Slice:
    with Coroutines(handler) as pool:
        slice_ = a_batch(*offsets)
        pool.pool.submit(slice_)
        assert pool.back() is slice_
    return slice_


def test_a_coroutine_gets_a_list_too_and_may_wait() -> None:
    seen: list[Any] = []

    async def store(records: list[Record]) -> None:
        await asyncio.sleep(0.001)
        task = asyncio.current_task()
        seen.append((offsets_of(records), task.get_name() if task else ""))

    assert run(store, 7, 8).plain
    assert seen == [([7, 8], "wc-work orders[0]@7")]


def test_a_coroutine_names_those_that_failed() -> None:
    async def store(records: list[Record]) -> None:
        await asyncio.sleep(0)
        raise PartialFailure(failed=[(records[1], ValueError("broken"))])

    slice_ = run(store, 7, 8, 9)
    assert {offset: str(error) for offset, error in failed(slice_).items()} == {8: "broken"}


def test_a_coroutine_that_hangs_with_a_batch_is_ended_and_all_of_it_has_failed() -> None:
    entered = threading.Event()

    async def store(_records: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    with Coroutines(store) as pool:
        slice_ = a_batch(7, 8)
        pool.pool.submit(slice_)
        assert entered.wait(DEADLINE_S)
        pool.turn()
        failure = pool.pool.inspect(stalled(slice_, end=True))
        assert failure is not None
        assert "in store" in failure.fault.stack
        assert pool.back() is slice_
    assert {type(error) for error in failed(slice_).values()} == {StalledError}
    assert list(failed(slice_)) == [7, 8]


def test_what_a_batch_sets_in_its_context_is_gone_in_the_next() -> None:
    seen: list[Any] = []

    async def store(records: Any) -> None:
        seen.append(current_record())
        await asyncio.sleep(0)
        seen.append(len(records))

    with Coroutines(store, slots=1) as pool:
        for offset in (7, 8):
            pool.pool.submit(a_batch(offset))
            pool.back()
    assert seen == [None, 1, None, 1]
