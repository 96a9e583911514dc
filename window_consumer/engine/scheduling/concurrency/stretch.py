"""A stretch: what the slices show that run while a limit is held.

Throughput follows from Little's law, the mean number of slices in progress divided by their mean
duration, or from a count if durations vary widely; ``adaptive_concurrency`` has the reasons.
"""

from __future__ import annotations

from math import sqrt

from attrs import define, frozen

STRETCH_S = 0.1
FINE_STRETCH_S = 0.25
"""The shortest stretch; the second value is for small steps: other processes take the processor for
tens of milliseconds."""

STRETCH_CALLS = 2.0
"""The shortest stretch in slice durations: a shorter one would miss slow slices."""

EVEN = 0.3
"""Below this spread, slices that began together end together."""

STRETCH_SLICES = 20
"""The fewest slices in a stretch."""

DEADLINE_S = 1.0
DEADLINE_CALLS = 10.0
"""The longest stretch, in seconds and in slice durations, while its result is uncertain."""

SURE = 6.0
"""A result is certain if the step is this many times the standard error of the mean."""


@frozen
class Measured:
    """The measurements of a stretch under one limit."""

    slots: float
    """The mean number of busy slots."""
    records_per_s: float
    """Records whose handler returned, per second."""
    slice_s: float
    """The mean duration of a slice."""
    record_s: float
    """The mean duration of a slice for each of its records."""
    call_s: float
    """The mean duration of a record without waiting for a slot."""


@define
class Stretch:
    """Sums over the slices of a stretch. Owner: poll thread."""

    limit: int
    began: float
    """When the limit was set: slices dispatched earlier do not show durations under it."""
    since: float
    """Before this, most completed slices were dispatched under another limit."""
    slices: int = 0
    records: int = 0
    done: int = 0
    out: int = 0
    busy: int = 0
    called_s: float = 0.0
    own: int = 0
    """Slices dispatched under this limit; ``seconds`` and ``squares`` sum their durations."""
    seconds: float = 0.0
    squares: float = 0.0

    @property
    def mean_s(self) -> float:
        """The mean duration of a slice that was dispatched under this limit."""
        return self.seconds / self.own

    @property
    def spread(self) -> float:
        """The standard deviation of a slice's duration, as a share of the mean."""
        mean = self.mean_s
        return sqrt(max(0.0, self.squares / self.own - mean * mean)) / mean

    @property
    def error(self) -> float:
        """The standard error of the mean, as a share of it."""
        return self.spread / sqrt(self.own)

    def is_over(self, now: float, factor: float, *, coarse: bool) -> bool:
        """Return whether it is long enough to judge a step by this factor.

        If the step is ``coarse``, a shorter one will do.
        """
        lasted_s = now - self.since
        if lasted_s < (STRETCH_S if coarse else FINE_STRETCH_S) or not self.done:
            return False
        if min(self.own, self.slices) < STRETCH_SLICES:
            return False
        call_s = self.called_s / self.slices
        if lasted_s < STRETCH_CALLS * call_s:
            return False
        if lasted_s >= max(DEADLINE_S, DEADLINE_CALLS * call_s):
            return True
        return self.error * SURE <= abs(factor - 1.0)

    def measured(self, now: float) -> Measured:
        """Return what the slices have shown; there are some."""
        records = self.done / self.slices
        if self.spread < EVEN:
            slices_per_s = self.out / self.slices / self.mean_s
        else:
            slices_per_s = self.slices / (now - self.since)
        return Measured(
            slots=self.busy / self.slices,
            records_per_s=records * slices_per_s,
            slice_s=self.mean_s,
            record_s=self.mean_s * self.slices / self.records,
            call_s=self.called_s / self.records,
        )
