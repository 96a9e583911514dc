"""Runs jobs side by side: each once, or each repeatedly at its own pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from attrs import define, field

if TYPE_CHECKING:
    from window_consumer.spark.jobs import RunningJob

BATCH_S: Final = 30.0
"""How long a running batch may take after a stop request; the next run repeats it."""

_CHECK_S: Final = 1
"""How long to wait for one job before checking the others."""


@define
class Turn:
    """One job, and its successive runs."""

    name: str
    _start: Callable[[str], RunningJob]
    path: str = field(default="", init=False)
    """Where its table is, known after the first start."""
    running: RunningJob | None = field(default=None, init=False)
    due: float = field(default=0.0, init=False)
    """When the next run starts."""
    _before: int = field(default=0, init=False)

    @property
    def records(self) -> int:
        """How many Kafka records all of its runs have read."""
        return self._before + (0 if self.running is None else self.running.sink.records)

    def start(self, every_s: float) -> None:
        """Start a run."""
        self.due = time.monotonic() + every_s
        self.running = self._start(self.name)
        self.path = self.running.sink.path

    def end(self) -> None:
        """Close the run that has ended."""
        self._before, self.running = self.records, None

    def stop(self) -> None:
        """Interrupt the run."""
        if self.running is not None:
            self.running.stop()


def run_once(turns: Sequence[Turn], stop: threading.Event, batch_s: float = BATCH_S) -> None:
    """Run each job until it has read everything; raise at once if one fails.

    Once ``stop`` is set, running batches may end first, for ``batch_s`` seconds.
    """
    for turn in turns:
        turn.start(0.0)
    left = list(turns)
    while left and not stop.is_set():
        left = [each for each in left if each.running and not each.running.wait(_CHECK_S)]
    _let_batches_end(left, batch_s)


def run_every(
    turns: Sequence[Turn],
    every_s: float,
    stop: threading.Event,
    on_tick: Callable[[str, RunningJob], None],
    batch_s: float = BATCH_S,
) -> None:
    """Run each job at its interval in seconds, each time until it has read everything.

    A late job runs again at once, and no job waits for another. Returns when ``stop`` is set and
    each running batch has ended or ``batch_s`` has passed; raises at once if a run fails.
    ``on_tick`` is called after each run.
    """
    while not stop.is_set():
        for turn in turns:
            if turn.running is None:
                if time.monotonic() >= turn.due:
                    turn.start(every_s)
            elif turn.running.wait(_CHECK_S):
                on_tick(turn.name, turn.running)
                turn.end()
        if not any(turn.running for turn in turns):
            stop.wait(max(0.0, min(turn.due for turn in turns) - time.monotonic()))
    _let_batches_end([turn for turn in turns if turn.running], batch_s)


def _let_batches_end(turns: Sequence[Turn], batch_s: float) -> None:
    runs = [turn.running for turn in turns if turn.running is not None]
    busy = [(each, each.batches()) for each in runs]
    deadline = time.monotonic() + batch_s
    while busy and time.monotonic() < deadline:
        busy = [
            (each, batches)
            for each, batches in busy
            if each.is_busy() and each.batches() == batches and not each.wait(_CHECK_S)
        ]
