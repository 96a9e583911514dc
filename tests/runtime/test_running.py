"""An application that starts: who waits for what, and what ends that."""

from __future__ import annotations

import contextlib
import logging
import threading
from types import SimpleNamespace
from typing import Any

from attrs import evolve

from tests.golden_texts import Golden
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.model.errors import StartStoppedError
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot
from window_consumer.runtime.running import Running, windows_of


class SlowToStart:
    """A worker whose child processes never begin."""

    def __init__(self) -> None:
        self.loop = SimpleNamespace(thread=threading.Thread())
        self._stopped = threading.Event()

    def start(self) -> None:
        assert self._stopped.wait(60.0)
        raise StartStoppedError("stopped while child processes were starting")

    def stop_starting(self) -> None:
        self._stopped.set()


def test_a_start_that_waits_for_child_processes_can_be_stopped(golden: Golden) -> None:
    worker: Any = SlowToStart()
    running = Running(
        lambda _state, _on_phase: [worker], contextlib.nullcontext(), logging.getLogger("tests")
    )
    asked = threading.Event()

    def stop_asked() -> bool:
        was_asked = asked.is_set()
        asked.set()
        return was_asked

    with golden.raises(StartStoppedError):
        running.start(stop_asked)
    assert running.wait(0)


class Meeting:
    """A worker that is looked at only while another one is, too."""

    def __init__(self, name: str, both: threading.Barrier):
        self.name = name
        self._both = both

    def snapshot(self, timeout_s: float) -> WorkerSnapshot:
        seen = WorkerSnapshot(name=self.name)
        with contextlib.suppress(threading.BrokenBarrierError):
            self._both.wait(timeout_s)
            return evolve(seen, windows=WindowsSnapshot((), ()))
        return seen


def test_workers_are_looked_at_together_so_that_none_waits_for_those_that_do_not_answer() -> None:
    both = threading.Barrier(2)
    workers: Any = [Meeting("charge", both), Meeting("refund", both)]
    assert windows_of([], 1.0) == {}
    assert list(windows_of(workers, 10.0)) == ["charge", "refund"]
    assert windows_of(workers[:1], 0.01) == {}
