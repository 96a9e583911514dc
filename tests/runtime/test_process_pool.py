"""Slots as processes, with real children: what crosses, and how they start."""

from __future__ import annotations

import gc
import json
import logging
import sys
import threading
from pathlib import Path
from time import perf_counter, sleep

import pytest

from tests.engine.support import Note
from tests.logged import events_in, fields_of
from tests.runtime.holdings import Holdings
from tests.runtime.process_pools import DEADLINE_S, MakePool, Pool, offsets
from tests.waiting import wait_until
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import (
    Fatal,
    LifespanError,
    RunError,
    StartStoppedError,
    UsageError,
    WorkerStoppedError,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.model.outcome import Outcome


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


def test_slices_and_results_larger_than_a_pipe_cross_at_the_same_time(pools: MakePool) -> None:
    pool = pools(1)
    large = "x" * 2**20
    slices = [pool.slice_of(*[f"produce {large}"] * 3, first=3 * n) for n in range(2)]
    for slice_ in slices:
        assert pool.back() is slice_
        results = [len(each.results[0].value or b"") for each in slice_.deviate().returned]
        assert results == [2**20] * 3


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
