"""Whose turn it is: calls that are made again go out beside new records, never ahead of them.

New records take what slots there are. Beside them those that failed before, retries and copies in
retry levels, get a share of the time that slots spend on new ones: so a record that always fails
leaves though there is always something new, and who has nothing to do with it hardly notices. Slots
that new records leave idle run retries, too, but no more than half of all: whatever a retry waits
for, the next new record finds a slot.
"""

from __future__ import annotations

from window_consumer.engine.scheduling.slices import Slice

SHARE = 0.125
"""The time for calls that are made again, as a part of that for new records that wait meanwhile."""

MOST_SAVED_S = 0.1
"""What was not used is no claim: after an outage many come back at once."""

IDLE_SHARE = 0.5
"""Of all slots, at least one."""

_WEIGHT = 0.2
"""Of the latest slice in what a call that is made again takes."""


class RetryShare:
    """Deals the slots out between new records and those that failed before. Owner: poll thread."""

    def __init__(self) -> None:
        self._out: dict[Slice, float] = {}
        """Slices of calls that are made again, and what each was charged in advance."""
        self._saved_s = 0.0
        """The time that calls made again may still take while new records wait."""
        self._cost_s = 0.0
        """What a record that is called again takes, about."""

    def has_room(self, slots: int) -> bool:
        """Tell whether another slice of calls that are made again may go out."""
        return len(self._out) < max(1, int(slots * IDLE_SHARE))

    @property
    def is_due(self) -> bool:
        """Such a slice may go out although new records wait."""
        return self._saved_s >= 0

    def sent(self, slice_: Slice) -> None:
        """Note that a slice goes out."""
        if not slice_.is_new:
            self._out[slice_] = 0.0

    def charge(self, slice_: Slice, usual_s: float) -> None:
        """Charge a slice that went out although new records wait: what it may take.

        ``usual_s`` is what any record takes, for as long as nothing else is known.
        """
        self._out[slice_] = (self._cost_s or usual_s) * len(slice_.messages)
        self._saved_s -= self._out[slice_]

    def over(self, slice_: Slice) -> None:
        """Note that a slice is over, or its call abandoned."""
        charged_s = self._out.pop(slice_, None)
        if charged_s is None:
            self._saved_s = min(self._saved_s + SHARE * slice_.elapsed, MOST_SAVED_S)
            return
        records = slice_.settled + len(slice_.messages)
        if not (records and slice_.elapsed):
            return
        self._cost_s += _WEIGHT * (slice_.elapsed / records - self._cost_s)
        if charged_s:
            self._saved_s += charged_s - slice_.elapsed
