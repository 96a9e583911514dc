"""How long calls take: a histogram that costs one step a slice."""

from __future__ import annotations

from bisect import bisect_left

from attrs import define, field, frozen

from window_consumer.core.slices import Slice

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

    counts: tuple[int, ...]
    """A bucket each, the last one for all that took longer than the last bound."""
    seconds: float

    @property
    def calls(self) -> int:
        """How many there were."""
        return sum(self.counts)


@define
class Durations:
    """Calls by how long they took. Owner: poll thread; anyone may read (a little stale)."""

    counts: list[int] = field(factory=lambda: [0] * (len(BOUNDS_S) + 1))
    seconds: float = 0.0

    def note(self, slice_: Slice) -> None:
        """Take note of a slice that is over: each of its calls counts with their mean.

        Slow handlers have slices of one record or a few; a batch is one call.
        """
        calls = 1 if slice_.is_batch else slice_.settled + len(slice_.messages)
        elapsed = slice_.elapsed
        if calls and elapsed:
            self.counts[bisect_left(BOUNDS_S, elapsed / calls)] += calls
            self.seconds += elapsed

    def histogram(self) -> Histogram:
        """Return what was noted so far."""
        return Histogram(tuple(self.counts), self.seconds)
