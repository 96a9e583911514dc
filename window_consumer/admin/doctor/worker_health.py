"""Problems of a worker, judged from one snapshot, for ``status``.

``doctor`` observes for some seconds and names causes; one snapshot shows only standstills.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from attrs import frozen

from window_consumer.admin.doctor.causes import duration
from window_consumer.engine.guards.breaker_state import FREE, BreakerState
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot

_HELD_S: Final = 5.0
"""Any handful of bad records makes the breaker hold them briefly; holding longer is a problem."""

_MINUTE_MS: Final = 60_000


class ProblemKind(StrEnum):
    """The kind of a problem; ``kind`` in JSON."""

    SILENT = "silent"
    NOT_READY = "not_ready"
    PAUSED = "paused"
    PARTITION_PAUSED = "partition_paused"
    FINDING = "finding"
    BREAKER = "breaker"
    CANNOT_WRITE = "cannot_write"
    STANDS_STILL = "stands_still"
    MISSING = "missing"
    NO_WORKERS = "no_workers"


@frozen
class WorkerProblem:
    """A problem."""

    kind: ProblemKind
    text: str
    """Its description, without the worker's name and a full stop."""


def problems_of(worker: WorkerSnapshot) -> Iterator[WorkerProblem]:
    """Yield the problems of a worker, the most urgent first."""
    windows = worker.windows
    if windows is None:
        yield WorkerProblem(
            ProblemKind.SILENT, f"its poll thread has not answered for {duration(worker.silent_s)}"
        )
        return
    if not worker.is_ready:
        yield WorkerProblem(ProblemKind.NOT_READY, _not_ready(worker))
    found = [*_stopped(windows), *_of_writes(windows)]
    yield from found
    if worker.stands_still and not found and worker.is_ready:
        yield WorkerProblem(
            ProblemKind.STANDS_STILL,
            "records wait, and none was finished in the last minute; `window-consumer doctor`"
            " looks for the cause",
        )


def _not_ready(worker: WorkerSnapshot) -> str:
    if worker.phase != "running":
        return f"it is {worker.phase or 'not running'}"
    if worker.catching_up is not None:
        return f"it is catching up: {worker.catching_up} records are left"
    return "it is not in its group"


def _stopped(windows: WindowsSnapshot) -> Iterator[WorkerProblem]:
    pause = windows.pause
    if pause is not None or (windows.halted and not any(each.pauses for each in windows.findings)):
        who = "" if pause is None else pause.words(duration(pause.seconds))
        yield WorkerProblem(ProblemKind.PAUSED, f"paused manually{who}")
    alone = [str(each.name) for each in windows.partitions if each.halted]
    if alone and not windows.halted:
        yield WorkerProblem(ProblemKind.PARTITION_PAUSED, f"paused manually: {', '.join(alone)}")
    for each in windows.findings:
        yield WorkerProblem(ProblemKind.FINDING, each.text)
    breaker = windows.breaker
    passes = breaker.state in FREE and (
        breaker.state is not BreakerState.HOLDING or (breaker.seconds or 0.0) < _HELD_S
    )
    if not passes:
        since = "" if breaker.seconds is None else f" for {duration(breaker.seconds)}"
        why = f": {breaker.why}" if breaker.why else ""
        yield WorkerProblem(
            ProblemKind.BREAKER, f"its circuit breaker has been {breaker.state}{since}{why}"
        )


def _of_writes(windows: WindowsSnapshot) -> Iterator[WorkerProblem]:
    if windows.cannot_write is not None:
        yield WorkerProblem(
            ProblemKind.CANNOT_WRITE, f"it cannot write copies or results: {windows.cannot_write}"
        )


def dead_per_min(samples: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the dead letters of the last minute of samples; None without samples."""
    recent = [each for each in samples if each["t"] > samples[-1]["t"] - _MINUTE_MS]
    if not recent:
        return None
    return 60 * sum(sum(each.get("dead", {}).values()) for each in recent) / len(recent)
