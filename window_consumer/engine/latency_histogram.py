"""How long calls take: a histogram that costs one step a slice."""

from __future__ import annotations

from bisect import bisect_left
from operator import sub

from attrs import define, field, frozen

from window_consumer.engine.scheduling.slices import Slice

BOUNDS_S = (
    *(0.00001, 0.0001, 0.001, 0.0025),
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(30.0, 60.0),
)
"""The upper ends of the buckets: those that OpenTelemetry's messaging conventions name, and some
below for handlers that only compute, some above for those that wait for people."""


@frozen
class Histogram:
    """What was noted up to a moment."""

    counts: tuple[int, ...] = ()
    """A bucket each, the last one for all that took longer than the last bound."""
    seconds: float = 0.0
    computed_s: float = 0.0
    """How long calls on threads had a processor; 0 for other calls."""

    @property
    def calls(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def since(self, earlier: Histogram) -> Histogram:
        """Return what was noted after ``earlier``; all of it where that is of another process."""
        counts = tuple(map(sub, self.counts, earlier.counts))
        if len(self.counts) != len(earlier.counts) or min(counts, default=0) < 0:
            return self
        return Histogram(
            counts,
            max(0.0, self.seconds - earlier.seconds),
            max(0.0, self.computed_s - earlier.computed_s),
        )

    def quantile(self, share: float) -> float | None:
        """Return what so many of the calls (0 to 1) took at most, about; None without calls.

        Within a bucket calls are taken to lie evenly. The last bucket has no end: what lies there
        took at least the last bound, which is returned.
        """
        wanted = share * self.calls
        below = 0
        lower = 0.0
        for count, upper in zip(self.counts, BOUNDS_S, strict=False):
            if count and below + count >= wanted:
                return lower + (upper - lower) * (wanted - below) / count
            below += count
            lower = upper
        return lower if self.calls else None


@define
class LatencyHistograms:
    """Calls by how long they took. Owner: poll thread; anyone may read (a little stale)."""

    counts: list[int] = field(factory=lambda: [0] * (len(BOUNDS_S) + 1))
    seconds: float = 0.0
    computed_s: float = 0.0

    def record(self, slice_: Slice) -> None:
        """Take note of a slice that is over: each of its calls counts with their mean.

        Slow handlers have slices of one record or a few; a batch is one call.
        """
        calls = 1 if slice_.is_batch else slice_.settled + len(slice_.messages)
        elapsed = slice_.elapsed
        if calls and elapsed:
            self.counts[bisect_left(BOUNDS_S, elapsed / calls)] += calls
            self.seconds += elapsed
            self.computed_s += slice_.computed

    def histogram(self) -> Histogram:
        """Return what was noted so far."""
        return Histogram(tuple(self.counts), self.seconds, self.computed_s)
