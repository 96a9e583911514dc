"""Slots as processes, with real children: what crosses, and what is left when one dies."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import pickle
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter, sleep
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, Note
from tests.golden_texts import Golden
from tests.logged import events_in, fields_of
from tests.runtime import children
from tests.runtime.holdings import Holdings
from tests.waiting import wait_until
from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import (
    Fatal,
    LifespanError,
    ProcessDiedError,
    RunError,
    StalledError,
    StartStoppedError,
    UsageError,
    WorkerStoppedError,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.model.outcome import Outcome
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.figures.stack_dump import ChildState
from window_consumer.runtime.pools.processes.child_process import Child
from window_consumer.runtime.pools.processes.child_slot import ProcessPoolRules
from window_consumer.runtime.pools.processes.pool import ProcessPool

DEADLINE_S = 60.0
AT_WORK = {ChildState.IDLE, ChildState.RUNNING, ChildState.RESTING}
LOGGER = logging.getLogger("tests.processes")

MakePool = Callable[..., "Pool"]


class Pool:
    """A pool and its completions queue."""

    def __init__(
        self, slots: int, handler: str = "obey", trouble: str = "", used: int = 0, **rules: Any
    ):
        faults = ErrorReports()
        self.completions: SimpleQueue[Any] = SimpleQueue()
        self.pool = ProcessPool(
            "work",
            slots,
            Caller(children.nothing, faults.failure, faults.stalled),
            self.completions,
            None,
            equip=pickle.dumps(children.Equip(handler, trouble)),
            logger=LOGGER,
            rules=ProcessPoolRules(**rules),
        )
        if used:
            self.pool.use(used)
        self.partition = Driven(ordering="key").engine.partitions[ORDERS]

    def slice_of(self, *values: str, keys: Any = None, first: int = 0) -> Slice:
        """Submit a slice with these values; without keys nothing is held behind anything."""
        offsets = range(first, first + len(values))
        keys = keys or [None] * len(values)
        messages: list[Any] = [
            Note(offset, key, value=value.encode())
            for offset, key, value in zip(offsets, keys, values, strict=True)
        ]
        slice_ = Slice(self.partition, messages, offsets, 10)
        self.pool.submit(slice_)
        return slice_

    def back(self) -> Slice:
        slice_ = self.completions.get(timeout=DEADLINE_S)
        assert isinstance(slice_, Slice), slice_
        return slice_

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self.pool.children() if child.state in AT_WORK]

    def kill_one(self, seeded: random.Random) -> bool:
        pids = self.pids
        with contextlib.suppress(ProcessLookupError):
            if pids:
                os.kill(seeded.choice(pids), signal.SIGKILL)
        return bool(pids)


def offsets(messages: list[Any]) -> list[int]:
    return [message.offset() for message in messages]


@pytest.fixture
def pools() -> Iterator[MakePool]:
    made: list[Pool] = []

    def make(*arguments: Any, **rules: Any) -> Pool:
        pool = Pool(*arguments, **rules)
        made.append(pool)
        pool.pool.start()
        return pool

    before = Holdings.now()
    yield make
    for pool in made:
        assert pool.pool.stop(60.0) == 0
    assert before.left() == []


def test_a_handler_sees_all_of_its_record_and_what_it_returns_comes_back(pools: MakePool) -> None:
    pool = pools(1, "tell")
    pool.partition.retry_level = RetryTopicLevel("orders", None, is_copy=True)
    note = Note(7, b"k", value=b"v", headers=[("h", b"1"), ("h", None)], topic="t", partition=3)
    pool.pool.submit(Slice(pool.partition, [note], [0], 1, attempt=2))
    (returned,) = pool.back().deviate().returned
    assert returned.messages == (note,)
    (result,) = returned.results
    assert json.loads(result.value or b"") == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "key": "k",
        "value": "v",
        "headers": [["h", "1"], ["h", ""]],
        "timestamp": 1_700_000_000_000,
        "attempt": 42,
        "is_copy": True,
        "state": True,
        "current": True,
        "cancelled": False,
        "argv": sys.argv,
    }


def test_records_that_are_over_leave_nothing_for_the_garbage_collector(pools: MakePool) -> None:
    pool = pools(1)
    gc.collect()
    # Not isinstance: it asks objects for their class, as which lazy ones of Django import settings.
    others = {id(each): each for each in gc.get_objects() if issubclass(type(each), Slice)}
    gc.disable()
    try:
        for _ in range(3):
            pool.slice_of("done", "done")
            pool.back()
        # The slot's thread may be about to let go of the one that it has just given back.
        deadline = perf_counter() + DEADLINE_S
        while any(
            issubclass(type(each), Slice) and id(each) not in others for each in gc.get_objects()
        ):
            assert perf_counter() < deadline
            sleep(0.001)
    finally:
        gc.enable()


def test_what_did_not_just_return_is_reported_and_its_lane_held(pools: MakePool) -> None:
    pool = pools(1)
    keys = [b"a", b"b", b"a", b"b", b"c", b"c", b"d"]
    slice_ = pool.slice_of("fail", "skip", "ok", "ok", "produce 1", "ok", "pass", keys=keys)
    assert pool.back() is slice_
    deviations = slice_.deviate()
    ((message, failure),) = deviations.failed
    assert message.offset() == 0
    assert isinstance(failure.error, Fatal)
    assert failure.fault.error_class == "tests.runtime.children._fail.<locals>.HomeMade"
    assert failure.fault.message == "refused"
    assert "in _fail" in failure.fault.stack
    assert "call_each" not in failure.fault.stack
    assert [(message.offset(), outcome) for message, outcome in deviations.skipped] == [
        (1, Outcome.SKIPPED),
        (6, Outcome.FILTERED),
    ]
    assert offsets(deviations.held) == [2, 5]
    assert [each.results[0].value for each in deviations.returned] == [b"1"]
    assert slice_.claimed() == 7


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


def test_slices_and_results_larger_than_a_pipe_cross_at_the_same_time(pools: MakePool) -> None:
    pool = pools(1)
    large = "x" * 2**20
    slices = [pool.slice_of(*[f"produce {large}"] * 3, first=3 * n) for n in range(2)]
    for slice_ in slices:
        assert pool.back() is slice_
        results = [len(each.results[0].value or b"") for each in slice_.deviate().returned]
        assert results == [2**20] * 3


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


def test_what_lies_ready_behind_a_slow_record_goes_to_another_child(
    pools: MakePool, tmp_path: Path
) -> None:
    pool = pools(2)
    gate = tmp_path / "gate"
    slow = [pool.slice_of(f"wait {gate}") for _ in range(2)]
    ready = pool.slice_of("ok", "ok", first=1)
    wait_until(lambda: all(each.running() is not None for each in slow))
    assert ready.claimed() == 0
    (tmp_path / "gate").touch()
    assert {id(pool.back()) for _ in range(3)} == {id(each) for each in (*slow, ready)}


def test_a_child_that_does_not_get_on_has_nothing_laid_ready(
    pools: MakePool, tmp_path: Path
) -> None:
    pool = pools(2)
    gates = [tmp_path / "a", tmp_path / "b"]
    slow = [pool.slice_of(f"wait {gate}") for gate in gates]
    behind = [pool.slice_of("ok", first=n) for n in range(2)]
    gates[1].touch()
    back = [pool.back() for _ in range(3)]
    assert {id(each) for each in back} == {id(slow[1]), *map(id, behind)}
    gates[0].touch()
    assert pool.back() is slow[0]


def busy_with(pool: Pool, gate: Path, slices: int) -> list[Slice]:
    """Submit slices that last until there is a file."""
    return [pool.slice_of(f"wait {gate}", first=number) for number in range(slices)]


def running(slices: list[Slice]) -> int:
    return sum(each.running() is not None for each in slices)


def test_children_are_started_when_they_are_needed_and_rest_when_they_are_not(
    pools: MakePool, tmp_path: Path, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    pool = pools(2, "obey", "", 1)
    assert (len(pool.pids), pool.pool.is_ready) == (1, True)
    pool.pool.use(2)
    assert not pool.pool.is_ready
    wait_until(lambda: pool.pool.is_ready)
    both = pool.pids
    slow = busy_with(pool, tmp_path / "one", 4)
    wait_until(lambda: running(slow) == 2)
    pool.pool.use(1)  # what lay ready in the second one goes to the first
    (tmp_path / "one").touch()
    assert {id(pool.back()) for _ in slow} == set(map(id, slow))
    slow = busy_with(pool, tmp_path / "two", 3)
    wait_until(lambda: running(slow) == 1)
    assert pool.pids == both
    pool.pool.use(2)
    wait_until(lambda: running(slow) == 2)
    (tmp_path / "two").touch()
    assert {id(pool.back()) for _ in slow} == set(map(id, slow))
    assert pool.pids == both
    assert caplog.text == ""
    pool.pool.use(1)
    os.kill(both[1], signal.SIGKILL)
    wait_until(lambda: pool.pids == both[:1])
    (end,) = (each for each in fields_of(caplog, LogEvent.CHILD_DIED)["args"] if "SIG" in str(each))
    golden(end)


def test_what_was_taken_back_meanwhile_goes_to_no_other_child(
    pools: MakePool, tmp_path: Path
) -> None:
    pool = pools(2)
    pool.pool.use(1)
    (slow,) = busy_with(pool, tmp_path / "gate", 1)
    ready = pool.slice_of("ok", "ok", first=1)
    _, unclaimed, _ = ready.split()
    assert offsets(unclaimed) == [1, 2]
    pool.pool.use(2)
    assert pool.back() is ready
    (tmp_path / "gate").touch()
    assert pool.back() is slow
    others = [pool.slice_of("ok", first=number) for number in range(3, 7)]
    assert {pool.back() for _ in others} == set(others)


def test_a_child_that_has_rested_for_long_ends_and_another_one_comes_when_it_is_needed(
    pools: MakePool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pools(2, rest_s=0.0)
    first, second = pool.pids
    slow = busy_with(pool, tmp_path / "gate", 2)
    wait_until(lambda: running(slow) == 2)
    pool.pool.use(1)
    assert pool.pids == [first, second]  # it works on something
    (tmp_path / "gate").touch()
    assert {pool.back(), pool.back()} == set(slow)
    wait_until(lambda: pool.pool.children()[1].on is None)
    pool.pool.use(1)
    wait_until(lambda: pool.pids == [first])
    wait_until(lambda: not Path(f"/proc/{second}").exists())
    pool.pool.use(2)
    wait_until(lambda: pool.pool.is_ready)
    _, third = pool.pids
    pool.pool.use(1)
    pool.pool.use(2)  # it is called back while it leaves
    wait_until(lambda: pool.pool.is_ready)
    assert not {second, third} & set(pool.pids)
    assert pool.pids[0] == first
    assert caplog.text == ""


def test_a_child_that_is_not_needed_and_does_not_leave_is_killed(
    pools: MakePool, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pools(2, "obey", "second stays", rest_s=0.0, leave_s=0.0)
    _, second = pool.pids
    pool.pool.use(1)
    assert Path(f"/proc/{second}").exists()
    pool.pool.use(1)
    wait_until(lambda: not Path(f"/proc/{second}").exists())
    assert "wc-work-slot-1" in fields_of(caplog, LogEvent.CHILD_KILLED)["args"]


def stalled(slice_: Slice, offset: int, *, end: bool) -> Stalled:
    return Stalled(slice_, ORDERS, offset, None, 1, 31.0, abandon=False, end=end)


@pytest.mark.parametrize(("deed", "where"), [("spin", "_spin"), ("hold", "_hold_the_interpreter")])
def test_a_call_that_hangs_says_where_and_its_process_is_replaced(
    pools: MakePool, deed: str, where: str
) -> None:
    pool = pools(1)
    slice_ = pool.slice_of("skip", deed, "ok")
    following = pool.slice_of("ok", first=3)
    wait_until(lambda: slice_.claimed() == 2)
    (pid,) = pool.pids
    seen = pool.pool.inspect(stalled(slice_, 1, end=False))
    assert seen is not None
    assert pool.pids == [pid]
    failure = pool.pool.inspect(stalled(slice_, 1, end=True))
    assert failure is not None
    assert type(failure.error) is StalledError
    assert failure.fault.fingerprint == seen.fault.fingerprint
    lines = failure.fault.stack.splitlines()
    assert "in obey" in lines[0]
    assert f"in {where}" in failure.fault.stack
    assert "call_each" not in failure.fault.stack
    assert pool.back() is slice_
    ((message, returned),) = slice_.deviate().failed
    assert (message.offset(), returned) == (1, failure)
    assert offsets([message for message, _ in slice_.deviate().skipped]) == [0]
    assert offsets(slice_.deviate().held) == [2]
    assert pool.back() is following
    (new,) = pool.pids
    assert new != pid


def test_a_death_names_the_handler_that_was_called_for_its_record(pools: MakePool) -> None:
    pool = pools(3, "either")
    expected = {b"first": "first", b"other": "second", b"before": ""}
    for key in expected:
        pool.slice_of("ok", "ok", "exit 3", keys=[b"first", b"other", key])
    for _ in expected:
        ((message, failure),) = pool.back().deviate().failed
        handler = expected[message.key()]
        assert (message.offset(), failure.handler) == (2, handler)
        end = f"this record, in the handler {handler}" if handler else "this record"
        assert failure.fault.message.endswith(end)


def test_children_show_what_they_do_and_stalls_name_the_handler(pools: MakePool) -> None:
    pool = pools(3, "either")
    pool.pool.use(2)
    slow = pool.slice_of("ok", "spin", "ok", keys=[b"first", b"other", b"first"])
    wait_until(lambda: slow.claimed() == 2)
    wait_until(lambda: pool.pool.children()[0].handler == "second")
    running, idle, resting = pool.pool.children()
    assert running.on == (ORDERS, 1)
    assert (running.name, running.handler) == ("wc-work-slot-0", "second")
    assert [each.name for each in running.stack] == ["obey", "_spin"]
    assert (idle.state, idle.on, list(idle.stack)) == (ChildState.IDLE, None, [])
    assert resting.state is ChildState.RESTING
    assert [running.pid, idle.pid, resting.pid] == pool.pids
    seen = pool.pool.inspect(stalled(slow, 1, end=False))
    assert seen is not None
    assert seen.handler == "second"
    os.kill(running.pid, signal.SIGSTOP)
    silent, *_ = pool.pool.children()
    assert (silent.on, list(silent.stack)) == ((ORDERS, 1), [])
    assert pool.pool.interrupt([slow])
    assert pool.back() is slow


def test_a_call_that_has_returned_cannot_be_given_up(pools: MakePool) -> None:
    pool = pools(1)
    slice_ = pool.slice_of("ok")
    assert pool.back() is slice_
    assert pool.pool.inspect(stalled(slice_, 0, end=True)) is None


def test_calls_whose_partition_is_given_up_end_with_their_process_unfinished(
    pools: MakePool,
) -> None:
    pool = pools(1)
    slice_ = pool.slice_of("ok", "spin", "ok")
    following = pool.slice_of("ok", first=3)
    wait_until(lambda: slice_.claimed() == 2)
    assert pool.pool.interrupt([slice_])
    assert pool.back() is slice_
    assert slice_.deviate().failed == []
    assert offsets(slice_.deviate().held) == [1, 2]
    assert pool.back() is following


def test_a_cancelled_call_sees_it(pools: MakePool) -> None:
    pool = pools(1, "until_cancelled")
    slice_ = pool.slice_of("x")
    wait_until(lambda: slice_.claimed() == 1)
    slice_.call.cancelled = True
    assert pool.back() is slice_


def test_log_lines_of_children_are_the_parents(
    pools: MakePool, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pools(1)
    pool.slice_of("log hello")
    pool.back()
    wait_until(lambda: "hello" in caplog.text)
    (line,) = [each for each in caplog.records if each.name == "children"]
    assert (line.getMessage(), line.threadName) == ("hello", "wc-work-slot-0")
    assert vars(line)["offset"] == 0
    assert "ValueError: invalid literal" in (line.exc_text or "")


@pytest.mark.parametrize(
    ("trouble", "kind", "text"),
    [
        ("usage", UsageError, "there is no module 'shop'"),
        ("bug", LifespanError, "ZeroDivisionError: in the application"),
        ("lifespan", LifespanError, "@app.lifespan failed at .*no database"),
        (
            "exit",
            RunError,
            "the process wc-work-slot-0 ended with exit code 7 while it imported the application",
        ),
        (
            "exit late",
            RunError,
            "ended with exit code 8 while it entered the application's lifespan",
        ),
    ],
)
def test_children_that_cannot_begin_say_why_and_nothing_is_left(
    trouble: str, kind: type[Exception], text: str
) -> None:
    before = Holdings.now()
    with pytest.raises(kind, match=text):
        Pool(1, "obey", trouble).pool.start()
    assert before.left() == []


def test_a_start_that_takes_long_says_so_and_can_be_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = Holdings.now()
    caplog.set_level(logging.INFO)
    pool = Pool(1, "obey", "hangs", awaited_s=0.01)

    def stop() -> None:
        wait_until(lambda: LogEvent.CHILDREN_AWAITED in events_in(caplog))
        pool.pool.stop_starting()

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(StartStoppedError):
        pool.pool.start()
    stopping.join()
    assert before.left() == []


def test_a_child_that_cannot_be_replaced_says_so_each_time_and_then_ends_the_worker(
    pools: MakePool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pools(1, "obey", f"once {tmp_path / 'begun'}", backoff_s=0.01, max_starts=2)
    pool.slice_of("exit 3")
    assert isinstance(pool.back(), Slice)
    stopped = pool.completions.get(timeout=DEADLINE_S)
    assert isinstance(stopped, WorkerStoppedError)
    assert "wc-work-slot-0" in str(stopped)
    _, slot, times, most, *_ = fields_of(caplog, LogEvent.CHILD_REFUSED)["args"]
    assert (slot, times, most) == ("wc-work-slot-0", 1, 2)
    assert "no database" in caplog.text


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
