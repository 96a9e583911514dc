"""What the live view shows at one moment, and the memory that figures of the last seconds need."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from attrs import define, field, frozen

from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.windows_snapshot import WindowsSnapshot

WITHIN_S: Final = 10.0
"""Rates and percentiles are of so long: a person sees what a change does."""


@frozen
class WorkerScene:
    """One worker of one process."""

    name: str
    snapshot: WindowsSnapshot
    state: str = ""
    """Where it is in its life, empty where it works."""
    per_s: float | None = None
    """Records that were finished a second; None before there are two snapshots."""
    durations: Histogram | None = None
    """How long calls took within the same time, or so far."""
    busy_ratio: float | None = None
    """Of the last minute, from the worker itself."""
    time_to_drain_s: float | None = None
    """Likewise."""


@frozen
class TopScene:
    """What is shown at one moment."""

    title: str
    seconds: float
    """Since the view began."""
    workers: tuple[WorkerScene, ...]
    gone: Mapping[str, str] = field(factory=dict)
    """What there is no snapshot of, and why, by name."""


class _Moment(NamedTuple):
    seconds: float
    snapshot: WindowsSnapshot


@define
class Memory:
    """The snapshots of the last seconds, by worker. Owner: who draws."""

    _moments: dict[str, deque[_Moment]] = field(factory=dict)

    def worker(self, name: str, snapshot: WindowsSnapshot, seconds: float) -> WorkerScene:
        """Remember a worker's windows, and return it with what follows from those before."""
        moments = self._moments.setdefault(name, deque())
        if moments and _is_another(moments[-1].snapshot, snapshot):
            moments.clear()  # the process has been started anew
        moments.append(_Moment(seconds, snapshot))
        while len(moments) > 2 and seconds - moments[1].seconds >= WITHIN_S:
            moments.popleft()
        first = moments[0]
        passed = seconds - first.seconds
        if passed <= 0:
            return WorkerScene(name, snapshot, durations=snapshot.durations)
        did = snapshot.counters.finished - first.snapshot.counters.finished
        recent = snapshot.durations.since(first.snapshot.durations)
        return WorkerScene(
            name,
            snapshot,
            per_s=did / passed,
            durations=recent if recent.calls else snapshot.durations,
        )


def _is_another(earlier: WindowsSnapshot, later: WindowsSnapshot) -> bool:
    return later.counters.delivered < earlier.counters.delivered
