"""An application that starts: who waits for what, and what ends that."""

from __future__ import annotations

import contextlib
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from window_consumer.model.errors import StartStoppedError
from window_consumer.runtime.running import Running


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


def test_a_start_that_waits_for_child_processes_can_be_stopped() -> None:
    worker: Any = SlowToStart()
    running = Running(
        lambda _state, _on_phase: [worker], contextlib.nullcontext(), logging.getLogger("tests")
    )
    asked = threading.Event()

    def stop_asked() -> bool:
        was_asked = asked.is_set()
        asked.set()
        return was_asked

    with pytest.raises(StartStoppedError, match="while child processes were starting"):
        running.start(stop_asked)
    assert running.wait(0)
