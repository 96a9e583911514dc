"""How many children there are, and which of them get the slices."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.golden_texts import Golden
from tests.logged import fields_of
from tests.runtime.process_pools import MakePool, Pool, offsets
from tests.waiting import wait_until
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.log_events import LogEvent


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
