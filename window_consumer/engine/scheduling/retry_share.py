"""Retries go out beside new records, never ahead of them.

New records take the slots they need. Beside them, retries and copies in retry levels get a share of
the time that slots spend on new records: a record that always fails leaves although new records
keep coming, and other records are hardly slowed. Slots that new records leave idle run retries too,
but no more than half of all slots: whatever a retry waits for, the next new record finds a slot.
"""

from __future__ import annotations

from window_consumer.engine.scheduling.slices import Slice

SHARE = 0.125
"""The time for retries, as a share of the time for new records that wait in the meantime."""

MOST_SAVED_S = 0.1
"""The most unused time that is kept: after an outage many retries come back at once."""

IDLE_SHARE = 0.5
"""The most slots that retries get, as a share of all slots; at least one slot."""

_WEIGHT = 0.2
"""The weight of the latest slice in the mean cost of a retry."""


class RetryShare:
    """Divides the slots between new records and retries. Owner: poll thread."""

    def __init__(self) -> None:
        self._out: dict[Slice, float] = {}
        """Slices of retries, and what each was charged in advance."""
        self._saved_s = 0.0
        """The time that retries may still take while new records wait."""
        self._cost_s = 0.0
        """The approximate seconds that a retried record takes."""

    def has_room(self, slots: int) -> bool:
        """Return whether another slice of retries may go out."""
        return len(self._out) < max(1, int(slots * IDLE_SHARE))

    @property
    def is_due(self) -> bool:
        """A slice of retries may go out although new records wait."""
        return self._saved_s >= 0

    def sent(self, slice_: Slice) -> None:
        """Record that a slice goes out."""
        if not slice_.is_new:
            self._out[slice_] = 0.0

    def charge(self, slice_: Slice, usual_s: float) -> None:
        """Charge a slice of retries that went out although new records wait.

        ``usual_s`` is the cost of any record, used until the cost of a retry is known.
        """
        self._out[slice_] = (self._cost_s or usual_s) * len(slice_.messages)
        self._saved_s -= self._out[slice_]

    def over(self, slice_: Slice) -> None:
        """Record that a slice has ended, or that its call was abandoned."""
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
