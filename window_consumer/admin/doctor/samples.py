"""What one look at a worker, and one at its group, have shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import evolve, field, frozen

from window_consumer.engine.windows_snapshot import (
    CallSnapshot,
    WindowsSnapshot,
)
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.worker_snapshot import (
    FailingRecord,
    WorkerSnapshot,
)

SILENT: Final = "silent"
"""The phase of a worker whose poll thread did not answer."""

UNHEARD: Final = "unheard"
"""The phase of a worker whose process did not answer."""


@frozen
class WorkerLook:
    """One worker of one process at one moment."""

    at_s: float
    """Seconds on the clock of who looks."""
    worker: WorkerSnapshot
    windows: WindowsSnapshot
    """Empty ones where the worker has shown none."""
    running: int = 0
    """Calls that run."""
    running_s: float | None = None
    """For how long they have been running, together; None where that is not told."""

    def blocking(self, name: TopicPartition) -> Sequence[FailingRecord]:
        """Return the records of a partition that hold up their lanes, as far as that is told."""
        return [each for each in self.worker.blocking if each.name == name]

    def stack_of(self, call: CallSnapshot) -> str:
        """Return where a call stands, empty where that is not known."""
        for each in self.worker.stacks or ():
            if (each.name, each.offset) == (call.name, call.offset):
                return each.stack
        return ""


@frozen
class GroupLook:
    """What the cluster knows of a worker's group at one moment."""

    at_s: float
    members: int | None = None
    """None where the cluster does not tell."""
    is_stable: bool = True
    lags: Mapping[TopicPartition, int] = field(factory=dict)
    """Offsets that are not committed, by partition of the worker's topics."""


def worker_look(worker: WorkerSnapshot, at_s: float) -> WorkerLook:
    """Return what a worker's admin address has told; without windows it is not ready."""
    windows = worker.windows
    if windows is None:
        return _unseen(at_s, evolve(worker, phase=SILENT))
    running_s = sum(call.seconds for call in windows.calls if not call.abandoned)
    return WorkerLook(at_s, worker, windows, windows.running, running_s)


def unheard(at_s: float, worker: str, process: str) -> WorkerLook:
    """Return a look at a worker whose process has not answered whoever asks for all of them."""
    return _unseen(at_s, WorkerSnapshot(name=worker, process=process, phase=UNHEARD))


def _unseen(at_s: float, worker: WorkerSnapshot) -> WorkerLook:
    return WorkerLook(at_s, evolve(worker, is_ready=False), WindowsSnapshot((), ()))


def answered(looks: Sequence[WorkerLook]) -> Sequence[WorkerLook]:
    """Return those that have shown something, or all where none has.

    A process that was late once is no reason, and figures begin with what it has told.
    """
    return [each for each in looks if each.worker.phase != UNHEARD] or looks
