"""What the last minute was like: how busy the slots were, and how long the backlog will take.

Both are there to scale by. They look at what was done, not at how a moment happens to be.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

from window_consumer.engine.counters import Counters
from window_consumer.engine.snapshot import Snapshot

WITHIN_S: Final = 60.0
EVERY_S: Final = 5.0
"""How often a sample is taken."""


class Sample(NamedTuple):
    """How far a worker had come at a moment."""

    at_s: float
    finished: int
    """Records that need no more calls where they were."""
    busy_s: float
    """Of all slots together, calls that still run included."""

    @classmethod
    def of(cls, at_s: float, did: Counters, picture: Snapshot) -> Sample:
        """Take a sample."""
        finished = did.processed + did.skipped + did.moved + did.dead_lettered + did.dropped
        running_s = sum(call.seconds for call in picture.calls)
        return cls(at_s, finished + did.expired, picture.durations.seconds + running_s)


class Trend:
    """The samples of one worker from the last minute. Its owner lets one thread at a time in."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> None:
        """Add a sample, and forget those that are older than a minute."""
        self._samples.append(sample)
        while len(self._samples) > 2 and sample.at_s - self._samples[1].at_s >= WITHIN_S:
            self._samples.popleft()

    def busy_ratio(self, slots: int) -> float | None:
        """Return the share of the slots' time that calls took, None before there is a trend."""
        between = self._between
        if between is None:
            return None
        seconds, _, busy_s = between
        return min(1.0, max(0.0, busy_s / (seconds * slots)))

    def time_to_drain_s(self, picture: Snapshot) -> float | None:
        """Return how long all that lags would take at the pace of the last minute.

        Infinity where something lags and nothing was finished in it. None before there is a trend,
        and before the client has heard how much there is.
        """
        lags = [each.lag.records for each in picture.partitions]
        known = [lag for lag in lags if lag is not None]
        between = self._between
        if between is None or len(known) < len(lags):
            return None
        seconds, finished, _ = between
        lag = sum(known)
        if not lag:
            return 0.0
        return lag * seconds / finished if finished > 0 else math.inf

    @property
    def _between(self) -> tuple[float, int, float] | None:
        """Return what lies between the first and the last sample."""
        if len(self._samples) < 2:
            return None
        first, last = self._samples[0], self._samples[-1]
        return last.at_s - first.at_s, last.finished - first.finished, last.busy_s - first.busy_s
