"""Batches in child processes: one running unit each, of which every record has its own end."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from mmap import PAGESIZE, mmap
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, Note
from tests.runtime import children
from tests.runtime.holdings import Holdings
from tests.runtime.process_pools import offsets
from tests.waiting import wait_until
from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import Fatal, ProcessDiedError, RetryLater, StalledError
from window_consumer.model.outcome import Outcome
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.pools.processes.pool import ProcessPool
from window_consumer.runtime.pools.processes.remote_batch import RemoteBatch
from window_consumer.runtime.pools.processes.shared_memory import SharedSlot

DEADLINE_S = 60.0

Submit = Callable[..., Slice]


def batch_of(*values: str) -> Slice:
    messages: list[Any] = [Note(n, value=text.encode()) for n, text in enumerate(values)]
    slice_ = Slice(Driven().engine.partitions[ORDERS], messages, range(len(values)), 10)
    slice_.is_batch = True
    return slice_


@pytest.fixture(scope="module")
def completions() -> SimpleQueue[Any]:
    return SimpleQueue()


@pytest.fixture(scope="module")
def pool(completions: SimpleQueue[Any]) -> Iterator[ProcessPool]:
    faults = ErrorReports()
    before = Holdings.now()
    made = ProcessPool(
        "work",
        1,
        Caller(pytest.fail, faults.failure, faults.stalled),
        completions,
        None,
        equip=pickle.dumps(children.Equip("obey_all")),
        logger=logging.getLogger("tests.processes"),
    )
    made.start()
    yield made
    assert made.stop(5.0) == 0
    assert before.left() == []


@pytest.fixture
def submit(pool: ProcessPool) -> Submit:
    def submit(*values: str) -> Slice:
        slice_ = batch_of(*values)
        pool.submit(slice_)
        return slice_

    return submit


def test_every_record_of_a_batch_comes_back_with_its_own_end(
    submit: Submit, completions: SimpleQueue[Any]
) -> None:
    slice_ = submit("ok", "fail", "common", "skip", "common", "ok", "pass")
    plain, counted = submit("ok", "ok"), submit("count", "ok", "ok")
    assert [completions.get(timeout=DEADLINE_S) for _ in range(3)] == [slice_, plain, counted]
    deviations = slice_.deviate()
    assert isinstance(deviations.failed[0][1].error, Fatal)
    assert offsets([message for message, _ in deviations.failed]) == [1, 2, 4]
    assert isinstance(deviations.failed[1][1].error, RetryLater)
    assert deviations.failed[1][1] is deviations.failed[2][1]
    assert [(message.offset(), outcome) for message, outcome in deviations.skipped] == [
        (3, Outcome.SKIPPED),
        (6, Outcome.FILTERED),
    ]
    assert [list(seqs) for seqs, _ in slice_.results().done] == [[0], [5]]
    assert plain.plain
    (returned,) = counted.deviate().returned
    assert offsets(list(returned.messages)) == [0, 1, 2]
    assert returned.results[0].value == b"3"


def test_nothing_is_taken_back_from_a_batch_that_has_begun(
    submit: Submit, completions: SimpleQueue[Any], tmp_path: Path
) -> None:
    running = submit("ok", f"wait {tmp_path}/gate", "ok")
    ready, behind = submit("ok", "ok"), submit("ok")
    wait_until(lambda: running.claimed() == 3)
    assert running.running() is running.messages[0]
    assert offsets(running.all_running()) == [0, 1, 2]
    assert running.split()[1] == []
    assert (ready.claimed(), ready.running()) == (0, None)
    assert offsets(ready.split()[1]) == [0, 1]
    assert offsets(behind.split()[1]) == [0]
    (tmp_path / "gate").touch()
    back = [completions.get(timeout=DEADLINE_S) for _ in range(3)]
    assert [each.messages for each in back if each is not running] == [[], []]
    assert offsets(running.messages) == [0, 1, 2]
    assert running.plain


def test_a_batch_on_which_its_process_dies_fails_as_a_whole_and_one_behind_it_does_not(
    submit: Submit, completions: SimpleQueue[Any]
) -> None:
    slice_, behind = submit("ok", "fail", "exit 3", "ok"), submit("ok")
    assert [completions.get(timeout=DEADLINE_S) for _ in range(2)] == [slice_, behind]
    failed = slice_.deviate().failed
    assert offsets([message for message, _ in failed]) == [0, 1, 2, 3]
    assert {type(failure.error) for _, failure in failed} == {ProcessDiedError}
    assert behind.plain


def test_what_a_batch_handler_forks_says_nothing_for_its_slot(
    submit: Submit, completions: SimpleQueue[Any]
) -> None:
    slice_, behind = submit("fork", "ok"), submit("count")
    assert [completions.get(timeout=DEADLINE_S) for _ in range(2)] == [slice_, behind]
    assert slice_.plain
    assert behind.deviate().returned[0].results[0].value == b"1"


class ReadWhileLoaded(SharedSlot):
    """A shared slot that another thread reads while it is loaded."""

    def __init__(self, memory: mmap, read: Callable[[], object]) -> None:
        super().__init__(memory, 0)
        self.read = read

    def load(self, records: int) -> None:
        self.read()
        super().load(records)


def test_a_batch_on_its_way_to_a_child_does_not_seem_to_be_claimed() -> None:
    slice_ = batch_of("ok", "ok")
    remote_slice = RemoteBatch(slice_)
    left: list[int] = []
    memory = mmap(-1, PAGESIZE)
    shared_slot = ReadWhileLoaded(memory, lambda: left.append(remote_slice.left()))
    remote_slice.enter(shared_slot, 1)
    assert (left, remote_slice.left()) == ([2], 2)


def test_a_batch_that_hangs_ends_with_its_process(
    pool: ProcessPool, submit: Submit, completions: SimpleQueue[Any]
) -> None:
    hanging, given_up = submit("ok", "spin", "ok"), submit("ok", "spin")
    wait_until(lambda: hanging.claimed() == 3)
    failure = pool.inspect(Stalled(hanging, ORDERS, 0, None, 1, 31.0, abandon=False, end=True))
    assert failure is not None
    assert "in _spin" in failure.fault.stack
    assert "run_batch" not in failure.fault.stack
    assert completions.get(timeout=DEADLINE_S) is hanging
    failed = hanging.deviate().failed
    assert offsets([message for message, _ in failed]) == [0, 1, 2]
    assert {type(each.error) for _, each in failed} == {StalledError}

    wait_until(lambda: [child.on for child in pool.children()] == [(ORDERS, 0)])
    pool.interrupt([given_up])
    assert completions.get(timeout=DEADLINE_S) is given_up
    returned = given_up.deviate()
    assert (offsets(returned.held), returned.failed) == ([0, 1], [])


def test_a_batch_is_halved_until_the_record_that_ends_processes_is_alone(
    pool: ProcessPool, completions: SimpleQueue[Any]
) -> None:
    retry = RetryRules(crash_attempts=1)
    it = Driven(batch=BatchRules(100, 1, 60.0), ordering="partition", retry=retry)
    deeds = ["ok", "segv"]
    it.deliver(*[Note(offset, value=deed.encode()) for offset, deed in enumerate(deeds)])
    left: list[Any] = []
    while it.engine.partitions[ORDERS].window.open:
        it.tick()
        for slice_ in it.last.dispatch:
            pool.submit(slice_)
        for failed in it.last_published:
            left.append(failed)
            it.copied(failed)
        if it.engine.dispatcher.out:
            it.engine.on_completion(completions.get(timeout=DEADLINE_S), it.now)
    ((message, reason, attempts),) = [(each.message, each.reason, each.attempts) for each in left]
    assert (message.offset(), str(reason), attempts) == (1, "CRASHED", 1)
    assert it.engine.counters.processed == 1
