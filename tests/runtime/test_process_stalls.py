"""What is known of the calls of children, and what becomes of those that hang."""

from __future__ import annotations

import os
import signal

import pytest

from tests.engine.support import ORDERS
from tests.runtime.process_pools import MakePool, offsets
from tests.waiting import wait_until
from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import StalledError
from window_consumer.runtime.figures.stack_dump import ChildState


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
