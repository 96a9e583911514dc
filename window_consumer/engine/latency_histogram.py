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
"""The upper bounds of the buckets: those of OpenTelemetry's messaging conventions, plus smaller
ones for handlers that only compute and larger ones for handlers that wait for people."""


@frozen
class Histogram:
    """A snapshot of the histogram."""

    counts: tuple[int, ...] = ()
    """One count for each bucket; the last one for calls beyond the last bound."""
    seconds: float = 0.0
    computed_s: float = 0.0
    """Processor time of calls on threads; 0 for other calls."""

    @property
    def calls(self) -> int:
        """The number of calls."""
        return sum(self.counts)

    def since(self, earlier: Histogram) -> Histogram:
        """Return what was recorded after ``earlier``; everything if that is of another process."""
        counts = tuple(map(sub, self.counts, earlier.counts))
        if len(self.counts) != len(earlier.counts) or min(counts, default=0) < 0:
            return self
        return Histogram(
            counts,
            max(0.0, self.seconds - earlier.seconds),
            max(0.0, self.computed_s - earlier.computed_s),
        )

    def quantile(self, share: float) -> float | None:
        """Return roughly the duration that ``share`` (0 to 1) of the calls did not exceed.

        Return None without calls. Calls are assumed to be spread evenly within a bucket. The last
        bucket has no upper bound: for calls there, its lower bound is returned.
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
    """Calls by duration. Owner: poll thread; any thread may read (a little stale)."""

    counts: list[int] = field(factory=lambda: [0] * (len(BOUNDS_S) + 1))
    seconds: float = 0.0
    computed_s: float = 0.0

    def record(self, slice_: Slice) -> None:
        """Record a finished slice: each of its calls counts with their mean.

        Slices of slow handlers hold one record or a few; a batch is one call.
        """
        calls = 1 if slice_.is_batch else slice_.settled + len(slice_.messages)
        elapsed = slice_.elapsed
        if calls and elapsed:
            self.counts[bisect_left(BOUNDS_S, elapsed / calls)] += calls
            self.seconds += elapsed
            self.computed_s += slice_.computed

    def histogram(self) -> Histogram:
        """Return a snapshot."""
        return Histogram(tuple(self.counts), self.seconds, self.computed_s)
