"""Claiming and taking back on real threads: the one place where two threads meet."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from queue import SimpleQueue
from time import perf_counter, thread_time
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, notes
from tests.golden_texts import Golden
from window_consumer import Produce
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import Fatal, NoHandlerMatched, Skip
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Record
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.record_calls import call_each
from window_consumer.runtime.calls.steps import Called
from window_consumer.runtime.context import Slot, current_record
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.pools.threads import ThreadPool


def a_slice(count: int, *, ordering: str = "unordered", keys: Any = None) -> Slice:
    driven = Driven(ordering=ordering)
    partition = driven.engine.partitions[ORDERS]
    return Slice(partition, notes(*range(count), keys=keys), range(count), 10 * count)


def run(slice_: Slice, handler: Called) -> None:
    call_each(slice_, Caller(handler, ErrorReports().failure), Slot())


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_every_record_is_called_once_in_order() -> None:
    seen: list[int] = []
    run(a_slice(5), lambda record: seen.append(record.offset))
    assert seen == [0, 1, 2, 3, 4]


def test_a_record_that_the_handler_keeps_stays_what_it_was() -> None:
    kept: list[Record] = []
    run(a_slice(5), kept.append)
    assert [record.offset for record in kept] == [0, 1, 2, 3, 4]


def test_a_record_object_is_used_again_only_where_nobody_kept_it() -> None:
    kept: list[Record] = []
    seen: set[int] = set()

    def handler(record: Record) -> None:
        if record.offset % 2:
            kept.append(record)
        assert id(record) not in {id(each) for each in kept[:-1]}
        seen.add(record.offset)

    run(a_slice(100), handler)
    assert [record.offset for record in kept] == list(range(1, 100, 2))
    assert len(seen) == 100


def test_a_record_kept_by_a_closure_or_an_exception_is_kept() -> None:
    closures: list[Any] = []

    def handler(record: Record) -> None:
        closures.append(lambda: record.offset)
        if record.offset == 1:
            raise ValueError(record)

    slice_ = a_slice(3)
    run(slice_, handler)
    assert [closure() for closure in closures] == [0, 1, 2]
    ((message, failure),) = slice_.deviate().failed
    assert (message.offset(), failure.error.args[0].offset) == (1, 1)


@pytest.mark.parametrize(
    "error", [ValueError(), TimeoutError(), StopIteration(), SystemExit(3), KeyboardInterrupt()]
)
def test_whatever_a_handler_raises_is_its_records_failure(error: BaseException) -> None:
    def handler(record: Record) -> None:
        if record.offset == 1:
            raise error

    slice_ = a_slice(3)
    run(slice_, handler)
    ((message, failure),) = slice_.deviate().failed
    assert (message.offset(), failure.error) == (1, error)
    assert slice_.claimed() == 3


def test_a_failure_keeps_no_frame_alive() -> None:
    def handler(_record: Record) -> None:
        raise Fatal("no")

    slice_ = a_slice(1)
    run(slice_, handler)
    assert slice_.deviate().failed[0][1].error.__traceback__ is None


def test_skipped_records_are_noted_and_hold_nothing_back() -> None:
    def handler(record: Record) -> None:
        if record.offset == 0:
            raise Skip
        if record.offset == 1:
            raise NoHandlerMatched("")

    slice_ = a_slice(3, ordering="key", keys=[b"a"] * 3)
    run(slice_, handler)
    noted = slice_.deviate()
    assert (noted.held, noted.failed) == ([], [])
    assert [(message.offset(), outcome) for message, outcome in noted.skipped] == [
        (0, Outcome.SKIPPED),
        (1, Outcome.FILTERED),
    ]


def test_after_a_failure_later_records_of_its_lane_are_held_back() -> None:
    called: list[int] = []

    def handler(record: Record) -> None:
        called.append(record.offset)
        if record.offset in (0, 3):
            raise ValueError

    slice_ = a_slice(7, ordering="key", keys=[b"a", b"b", b"a", b"b", b"c", b"b", None])
    run(slice_, handler)
    noted = slice_.deviate()
    assert called == [0, 1, 3, 4, 6]
    assert [m.offset() for m in noted.held] == [2, 5]
    assert [m.offset() for m, _ in noted.failed] == [0, 3]


def test_the_current_record_is_known_within_the_handler_and_only_there() -> None:
    completions: SimpleQueue[Any] = SimpleQueue()
    seen: list[tuple[int, int, str]] = []

    def handler(_record: Record) -> None:
        current = current_record()
        assert current is not None
        seen.append((current.offset, current.attempt, threading.current_thread().name))

    pool = ThreadPool("charge", 1, Caller(handler, ErrorReports().failure), completions, "state")
    pool.start()
    pool.submit(a_slice(2))
    completions.get(timeout=60)
    assert pool.stop(60.0) == 0
    assert seen == [(0, 1, "wc-charge-slot-0"), (1, 1, "wc-charge-slot-0")]
    assert current_record() is None


def test_the_state_of_the_lifespan_reaches_the_record() -> None:
    completions: SimpleQueue[Any] = SimpleQueue()
    seen: list[Any] = []
    caller = Caller(lambda record: seen.append(record.state), ErrorReports().failure)
    pool = ThreadPool("charge", 1, caller, completions, {"pool": 1})
    pool.start()
    pool.submit(a_slice(1))
    completions.get(timeout=60)
    pool.stop(60.0)
    assert seen == [{"pool": 1}]


def test_a_thread_is_made_only_where_a_slice_would_wait_for_one() -> None:
    """A range of 1..200 is not 200 threads that have nothing to do."""
    completions: SimpleQueue[Any] = SimpleQueue()
    names: set[str] = set()
    gate = threading.Semaphore(0)

    def handler(_record: Record) -> None:
        names.add(threading.current_thread().name)
        gate.acquire(timeout=60)

    pool = ThreadPool("lazy", 200, Caller(handler, ErrorReports().failure), completions, None)
    pool.start()
    for _ in range(100):
        for _ in range(3):
            pool.submit(a_slice(1))
        gate.release(3)
        for _ in range(3):
            completions.get(timeout=60)
    assert len(names) <= 3
    for _ in range(8):
        pool.submit(a_slice(1))
    while len(names) < 8:
        assert completions.empty(), "a slice waits although there are slots"
    gate.release(8)
    assert pool.stop(60.0) == 0


def test_as_many_slots_take_slices_as_may_be_used_and_no_more() -> None:
    completions: SimpleQueue[Any] = SimpleQueue()
    running: dict[int, None] = {}
    most: list[int] = []
    all_there = threading.Barrier(1)

    def handler(record: Record) -> None:
        running[id(record)] = None
        most.append(len(running))
        all_there.wait(30)
        del running[id(record)]

    pool = ThreadPool("resized", 50, Caller(handler, ErrorReports().failure), completions, None)
    pool.start()
    for slots in (8, 3, 20, 1, 50, 4):
        all_there = threading.Barrier(1)
        pool.use(slots)
        for _ in range(50):
            pool.submit(a_slice(1))
        for _ in range(50):
            completions.get(timeout=60)
        # Those that are too many have ended by now: they come before what is queued later.
        most.clear()
        all_there = threading.Barrier(slots)
        for _ in range(3 * slots):
            pool.submit(a_slice(1))
        for _ in range(3 * slots):
            completed = completions.get(timeout=60)
            assert completed.plain, "so many run at once, else they wait for each other in vain"
        assert max(most) <= slots
        assert len(pool._threads) <= 50 + slots  # those that have ended are forgotten
    assert pool.stop(60.0) == 0


@pytest.mark.usefixtures("eager_switching")
def test_each_record_is_claimed_once_while_others_take_back() -> None:
    """Slots run slices while another thread takes their rest back and deals it out again."""
    records, slots = 20_000, 4
    called: Counter[int] = Counter()
    completions: SimpleQueue[Any] = SimpleQueue()

    def handler(record: Record) -> None:
        called[record.offset] += 1

    random_ = random.Random(1)
    pool = ThreadPool("stress", slots, Caller(handler, ErrorReports().failure), completions, None)
    pool.start()
    partition = Driven().engine.partitions[ORDERS]
    messages = notes(*range(records))
    out: list[Slice] = []
    accounted: list[int] = []

    def deal(part: list[Any], seqs: Any) -> None:
        slice_ = Slice(partition, part, seqs, 0)
        out.append(slice_)
        pool.submit(slice_)

    for start in range(0, records, 100):
        deal(messages[start : start + 100], range(start, start + 100))
    deadline = perf_counter() + 60
    while out and perf_counter() < deadline:
        victim = random_.choice(out)
        past, unclaimed, seqs = victim.split()
        accounted.extend(past.seqs)
        for start in range(0, len(unclaimed), 7):
            deal(unclaimed[start : start + 7], seqs[start : start + 7])
        while not completions.empty():
            done = completions.get()
            accounted.extend(done.seqs)
            out.remove(done)
    assert pool.stop(60.0) == 0
    assert sorted(accounted) == list(range(records))
    assert set(called.values()) == {1}
    assert len(called) == records


@pytest.mark.usefixtures("eager_switching")
def test_what_a_slot_has_claimed_is_a_prefix_also_while_it_runs() -> None:
    """The record that stays in a split slice is the last one that the slot has begun."""
    completions: SimpleQueue[Any] = SimpleQueue()
    begun: list[int] = []
    pool = ThreadPool(
        "stress",
        1,
        Caller(lambda record: begun.append(record.offset), ErrorReports().failure),
        completions,
        None,
    )
    pool.start()
    partition = Driven().engine.partitions[ORDERS]
    for _ in range(300):
        begun.clear()
        slice_ = Slice(partition, notes(*range(50)), range(50), 0)
        pool.submit(slice_)
        while not slice_.claimed():
            pass
        past, unclaimed, _ = slice_.split()
        completions.get(timeout=60)
        expected = [m.offset() for m in [*past.messages, *slice_.messages]]
        assert begun == expected
        assert len(expected) + len(unclaimed) == 50
    assert pool.stop(60.0) == 0


def test_what_a_handler_returns_to_be_produced_is_noted_with_its_record() -> None:
    slice_ = a_slice(4)
    wanted = {1: Produce("invoices", "1"), 3: [Produce("invoices", "2"), Produce("invoices", "3")]}
    run(slice_, lambda record: wanted.get(record.offset))
    noted = slice_.deviate()
    assert [[m.offset() for m in each.messages] for each in noted.returned] == [[1], [3]]
    assert [len(each.results) for each in noted.returned] == [1, 2]
    assert [seqs for seqs, _ in slice_.results().done] == [range(1), range(2, 3)]


def test_behind_a_record_with_results_its_lane_is_held_back() -> None:
    called: list[int] = []

    def handler(record: Record) -> object:
        called.append(record.offset)
        return Produce("invoices") if record.offset in (0, 3) else None

    slice_ = a_slice(7, ordering="key", keys=[b"a", b"b", b"a", b"b", b"c", b"b", None])
    run(slice_, handler)
    assert called == [0, 1, 3, 4, 6]
    assert [m.offset() for m in slice_.deviate().held] == [2, 5]


def test_results_that_make_no_sense_are_an_error_of_the_handler(golden: Golden) -> None:
    slice_ = a_slice(3, ordering="key", keys=[b"a", b"b", b"b"])
    run(slice_, lambda record: [Produce("invoices"), record.offset])
    noted = slice_.deviate()
    assert [(m.offset(), type(each.error)) for m, each in noted.failed] == [
        (0, TypeError),
        (1, TypeError),
    ]
    golden(noted.failed[0][1].fault.message)
    assert noted.returned == []


@pytest.mark.parametrize("computes", [True, False])
def test_what_calls_compute_is_distinguished_from_what_they_wait(*, computes: bool) -> None:
    def handler(_record: Record) -> None:
        if not computes:
            threading.Event().wait(0.05)
        until = thread_time() + 0.05
        while computes and thread_time() < until:
            pass

    completions: SimpleQueue[Any] = SimpleQueue()
    pool = ThreadPool("charge", 1, Caller(handler, ErrorReports().failure), completions, None)
    pool.submit(a_slice(1))
    slice_ = completions.get(timeout=60)
    pool.stop(60.0)
    assert slice_.elapsed >= 0.05
    assert slice_.computed >= 0.05 if computes else slice_.computed < slice_.elapsed / 2
