"""What is left when a child dies, or says what is no message."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from tests.engine.support import Note
from tests.logged import events_in, fields_of
from tests.runtime.process_pools import DEADLINE_S, MakePool, Pool, offsets
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import ProcessDiedError, WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.pools.processes.child_process import Child


@pytest.mark.parametrize(
    ("deed", "end"),
    [
        ("exit 3", "ended with exit code 3"),
        ("segv", "was killed by SIGSEGV"),
        ("kill", "was killed by SIGKILL"),
    ],
)
def test_a_child_that_dies_costs_only_the_record_that_it_was_on(
    pools: MakePool, deed: str, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pools(1)
    first = pool.slice_of("ok", "skip", deed, "ok", "ok")
    second = pool.slice_of("ok", first=5)
    assert pool.back() is first
    deviations = first.deviate()
    ((message, failure),) = deviations.failed
    assert (message.offset(), type(failure.error)) == (2, ProcessDiedError)
    assert f"wc-work-slot-0 {end}" in failure.fault.message
    assert offsets([message for message, _ in deviations.skipped]) == [1]
    assert offsets(deviations.held) == [3, 4]
    results = first.results()
    assert [list(seqs) for seqs, _ in results.done] == [[0]]
    assert pool.back() is second
    assert second.deviations is None
    assert end in fields_of(caplog, LogEvent.CHILD_DIED)["args"]


def test_what_a_handler_forks_is_no_slot_and_says_nothing_for_one(
    pools: MakePool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pools(1)
    marks = tmp_path / "marks"
    for first in (0, 4):
        slice_ = pool.slice_of("ok", "fork", *[f"mark {marks}"] * 2, first=first)
        assert pool.back() is slice_
        assert slice_.deviations is None
    assert marks.read_text().split() == ["2", "3", "6", "7"]
    assert caplog.text == ""


def test_a_child_that_says_rubbish_is_replaced_and_its_slot_lives_on(
    pools: MakePool, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pools(1)
    (before,) = pool.pids
    slice_ = pool.slice_of("rubbish", "spin")
    assert pool.back() is slice_
    ((_message, failure),) = slice_.deviate().failed
    assert isinstance(failure.error, ProcessDiedError)
    assert LogEvent.CHILD_GARBLED in events_in(caplog)
    follows = pool.slice_of("ok", first=5)
    assert pool.back() is follows
    assert before not in pool.pids


@pytest.mark.parametrize("how", ["silent", "silent with a thread that goes on"])
def test_a_child_that_falls_silent_is_ended_and_replaced(pools: MakePool, how: str) -> None:
    pool = pools(1, leave_s=0.1 if how == "silent" else DEADLINE_S)
    slice_ = pool.slice_of("ok", how)
    assert pool.back() is slice_
    follows = pool.slice_of("ok", first=2)
    assert pool.back() is follows
    assert follows.deviations is None


class Dealing:
    """Deals records out and again, the way that the core does, until all of them are over."""

    def __init__(self, pool: Pool):
        self.pool = pool
        self.out: dict[Slice, None] = {}
        self.over: Counter[int] = Counter()
        self.charged: Counter[int] = Counter()

    def submit(self, messages: list[Any]) -> None:
        if messages:
            slice_ = Slice(self.pool.partition, messages, offsets(messages), 0)
            self.out[slice_] = None
            self.pool.pool.submit(slice_)

    def take_back(self, slice_: Slice) -> None:
        past, unclaimed, _ = slice_.split()
        self.settle(past)
        half = len(unclaimed) // 2
        self.submit(unclaimed[:half])
        self.submit(unclaimed[half:])

    def read(self) -> None:
        while not self.pool.completions.empty():
            slice_ = self.pool.back()
            del self.out[slice_]
            self.settle(slice_)

    def settle(self, slice_: Slice) -> None:
        results = slice_.results()
        for seqs, _ in results.done:
            self.over.update(seqs)
        failed = [index for index, _ in results.failed]
        self.charged.update(slice_.seqs[index] for index in failed)
        self.submit([slice_.messages[index] for index in results.held])
        self.submit([slice_.messages[index] for index in failed])


def test_the_stack_of_a_child_that_has_ended_is_empty_at_once() -> None:
    """Its pipe is at its end, and readable for ever."""
    stack, given = os.pipe()
    os.close(given)
    child = object.__new__(Child)
    child._stack = stack
    assert child.asked_frames(perf_counter() + DEADLINE_S) == []
    os.close(stack)


def test_each_record_runs_once_while_others_take_back_and_children_are_killed(
    pools: MakePool, tmp_path: Path
) -> None:
    """Every record is over, given back, or charged; what was given back did not run."""
    journal = tmp_path / "journal"
    records, size = 1500, 60
    value = f"mark {journal}".encode()
    pool = pools(2)
    dealing = Dealing(pool)
    for first in range(0, records, size):
        dealing.submit([Note(offset, None, value=value) for offset in range(first, first + size)])
    seeded = random.Random(1)
    deadline = perf_counter() + DEADLINE_S
    turns = kills = 0
    while dealing.out:
        assert perf_counter() < deadline
        turns += 1
        dealing.take_back(seeded.choice(list(dealing.out)))
        if turns % 20 == 0 and kills < 3:
            kills += pool.kill_one(seeded)
        dealing.read()
    assert kills > 1
    assert sorted(dealing.over) == list(range(records))
    assert set(dealing.over.values()) == {1}
    ran = Counter(map(int, journal.read_text().split()))
    assert ran.keys() == dealing.over.keys()
    # A record that was charged may have run to its end already: it runs once more.
    assert {offset for offset, times in ran.items() if times > 1} <= dealing.charged.keys()
    assert sum(dealing.charged.values()) <= kills


class Uncrossable(Note):
    """A record that nobody foresaw."""

    def headers(self) -> Any:
        raise SystemError("returned a result with an exception set")


def test_a_thread_of_a_child_that_dies_stops_the_worker_and_names_the_record(
    pools: MakePool,
) -> None:
    pool = pools(1)
    messages: list[Any] = [Uncrossable(5, None, value=b"")]
    pool.pool.submit(Slice(pool.partition, messages, [0], 10))
    error = pool.completions.get(timeout=DEADLINE_S)
    assert isinstance(error, WorkerStoppedError)
    assert "wc-work-slot-0-keeper" in str(error)
    assert "orders[0]@5" in str(error)
