"""One observation of a worker, and one of its group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import evolve, field, frozen

from window_consumer.engine.windows_snapshot import CallSnapshot, WindowsSnapshot
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.worker_snapshot import FailingRecord, WorkerSnapshot

SILENT: Final = "silent"
"""The phase of a worker whose poll thread did not answer."""

UNANSWERED: Final = "unheard"
"""The phase of a worker whose process did not answer."""


@frozen
class WorkerLook:
    """One worker of one process at one moment."""

    at_s: float
    """Seconds on the observer's clock."""
    worker: WorkerSnapshot
    windows: WindowsSnapshot
    """Empty if the worker has shown none."""
    running: int = 0
    """The number of running calls."""
    running_s: float | None = None
    """Their total running time so far; None if unknown."""

    def blocking(self, name: TopicPartition) -> Sequence[FailingRecord]:
        """Return the known records of a partition that block their lanes."""
        return [each for each in self.worker.blocking if each.name == name]

    def stack_of(self, call: CallSnapshot) -> str:
        """Return the stack of a call, empty if unknown."""
        for each in self.worker.stacks or ():
            if (each.name, each.offset) == (call.name, call.offset):
                return each.stack
        return ""


@frozen
class GroupLook:
    """A worker's group at one moment, as the cluster sees it."""

    at_s: float
    members: int | None = None
    """None if the cluster does not report it."""
    is_stable: bool = True
    lags: Mapping[TopicPartition, int] = field(factory=dict)
    """Uncommitted offsets, by partition of the worker's topics."""


def worker_look(worker: WorkerSnapshot, at_s: float) -> WorkerLook:
    """Return the observation in an admin answer; without windows the worker is not ready."""
    windows = worker.windows
    if windows is None:
        return _unseen(at_s, evolve(worker, phase=SILENT))
    running_s = sum(call.seconds for call in windows.calls if not call.abandoned)
    return WorkerLook(at_s, worker, windows, windows.running, running_s)


def unanswered(at_s: float, worker: str, process: str) -> WorkerLook:
    """Return an observation of a worker whose process did not answer."""
    return _unseen(at_s, WorkerSnapshot(name=worker, process=process, phase=UNANSWERED))


def _unseen(at_s: float, worker: WorkerSnapshot) -> WorkerLook:
    return WorkerLook(at_s, evolve(worker, is_ready=False), WindowsSnapshot((), ()))


def answered(looks: Sequence[WorkerLook]) -> Sequence[WorkerLook]:
    """Return the observations with windows, or all if none has any.

    A single late answer is not a cause, and figures begin with the first real answer.
    """
    return [each for each in looks if each.worker.phase != UNANSWERED] or looks
