"""The trend of the last minute: how busy the slots were, and how long the backlog will take.

Both serve autoscaling, so they measure work done, not the state of a moment.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

from attrs import evolve

from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot

WITHIN_S: Final = 60.0
EVERY_S: Final = 5.0
"""How often a sample is taken."""


class TrendSample(NamedTuple):
    """A worker's progress at one moment."""

    at_s: float
    finished: int
    """The number of records that need no more calls in their topic."""
    busy_s: float
    """The busy time of all slots together, including running calls."""

    @classmethod
    def of(cls, at_s: float, windows: WindowsSnapshot) -> TrendSample:
        """Take a sample."""
        running_s = sum(call.seconds for call in windows.calls)
        return cls(at_s, windows.counters.finished, windows.durations.seconds + running_s)


class Trend:
    """One worker's samples of the last minute. Not thread-safe: its owner serializes access."""

    def __init__(self) -> None:
        self._samples: deque[TrendSample] = deque()

    def add(self, sample: TrendSample) -> None:
        """Add a sample, and drop those older than a minute."""
        self._samples.append(sample)
        while len(self._samples) > 2 and sample.at_s - self._samples[1].at_s >= WITHIN_S:
            self._samples.popleft()

    def added_to(self, seen: WorkerSnapshot) -> WorkerSnapshot:
        """Return a snapshot with the trend of the last minute.

        If there is a lag and nothing finished, it stands still and has no time to drain.
        """
        drain_s = None if seen.windows is None else self.time_to_drain_s(seen.windows)
        stands_still = drain_s == math.inf
        return evolve(
            seen,
            busy_ratio=self.busy_ratio(seen.slots),
            time_to_drain_s=None if stands_still else drain_s,
            stands_still=stands_still,
        )

    def busy_ratio(self, slots: int) -> float | None:
        """Return the share of the slots' time spent in calls, None before there is a trend."""
        between = self._between
        if between is None:
            return None
        seconds, _, busy_s = between
        return min(1.0, max(0.0, busy_s / (seconds * slots)))

    def time_to_drain_s(self, windows: WindowsSnapshot) -> float | None:
        """Return how long the lag would take at the pace of the last minute.

        Infinity if there is a lag and nothing finished. None before there is a trend, and before
        the client knows the lag.
        """
        lag, between = windows.lag, self._between
        if between is None or lag is None:
            return None
        seconds, finished, _ = between
        if not lag:
            return 0.0
        return lag * seconds / finished if finished > 0 else math.inf

    @property
    def _between(self) -> tuple[float, int, float] | None:
        """Return the differences between the first and the last sample."""
        if len(self._samples) < 2:
            return None
        first, last = self._samples[0], self._samples[-1]
        return last.at_s - first.at_s, last.finished - first.finished, last.busy_s - first.busy_s
