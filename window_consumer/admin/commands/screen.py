"""The contents of the live view, and the memory of snapshots for its rates."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from attrs import define, field, frozen

from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.windows_snapshot import WindowsSnapshot

WITHIN_S: Final = 10.0
"""The period of rates and percentiles, short enough to show the effect of a change."""


@frozen
class WorkerScene:
    """One worker of one process."""

    name: str
    snapshot: WindowsSnapshot
    state: str = ""
    """Its phase, empty while it works normally."""
    per_s: float | None = None
    """Finished records per second; None before there are two snapshots."""
    durations: Histogram | None = None
    """The durations of calls in the same period, or so far."""
    busy_ratio: float | None = None
    """The ratio over the last minute, from the worker itself."""
    time_to_drain_s: float | None = None
    """The estimate of the worker itself."""


@frozen
class TopScene:
    """The contents at one moment."""

    title: str
    seconds: float
    """Seconds since the view began."""
    workers: tuple[WorkerScene, ...]
    gone: Mapping[str, str] = field(factory=dict)
    """The names without a snapshot, with the reason."""


class _Moment(NamedTuple):
    seconds: float
    snapshot: WindowsSnapshot


@define
class Memory:
    """The snapshots of the last seconds, by worker. Owner: the thread that draws."""

    _moments: dict[str, deque[_Moment]] = field(factory=dict)

    def worker(self, name: str, snapshot: WindowsSnapshot, seconds: float) -> WorkerScene:
        """Add a worker's windows; return them with figures relative to earlier ones."""
        moments = self._moments.setdefault(name, deque())
        if moments and _is_another(moments[-1].snapshot, snapshot):
            moments.clear()  # the process was restarted
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
