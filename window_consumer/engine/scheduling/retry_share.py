"""Retries go out beside new records, never ahead of them.

New records take the slots they need. Retries and copies in retry levels get, in addition, a share
of the time that slots spend on new records: a record that always fails leaves even while new
records keep coming, and other records are hardly slowed. Slots that new records leave idle run
retries too, but long retries get at most half of all slots, so that the next new record finds a
slot. How many slots new records leave idle follows from how many they have used: the next ones may
still be in Kafka. If no new record can start because failed ones fill all windows, retries get all
idle slots (``start_gate``).
"""

from __future__ import annotations

from math import ceil, exp

from window_consumer.engine.scheduling.slices import Slice

SHARE = 0.125
"""The time for retries, as a share of the time for new records that wait in the meantime."""

MOST_SAVED_S = 0.1
"""The most unused time that is saved up: after an outage many retries come back at once."""

IDLE_SHARE = 0.5
"""The most slots that retries get, as a share of all slots; at least one slot."""

LEAST_SHARE = 0.125
"""The slots that retries get however busy the others are, as a share of all slots."""

QUICK_S = 0.05
"""Retries that take no longer than this may use all slots: a new record waits at most as long."""

RESERVE = 1.25
"""How many slots are kept for new records, as a multiple of those that they have kept busy."""

LOAD_S = 0.5
"""The time over which the load of new records is measured; longer if their calls take longer."""

_WEIGHT = 0.2
"""The weight of the latest slice in the mean cost of a retry."""


class RetryShare:
    """Divides the slots between new records and retries. Owner: poll thread."""

    def __init__(self, slots: int) -> None:
        self._out: dict[Slice, float] = {}
        """Slices of retries, and what each was charged in advance."""
        self._saved_s = 0.0
        """The time that retries may still take while new records wait."""
        self._cost_s = 0.0
        """The approximate seconds that one retried record takes."""
        self._load = float(slots)
        """How many slots new records have kept busy lately, at ``_load_at``; at first all."""
        self._load_at = float("-inf")
        self._now = 0.0
        self.is_busy = False
        """New records have kept all slots busy lately: retries are charged, whether new ones wait
        or not."""

    def has_room(self, slots: int, idle_slots: int, now: float) -> bool:
        """Return whether another slice of retries may go out although new records may come.

        New records may be in Kafka while slots are idle, so the slots they use are measured.
        """
        if self._load_at < 0:
            self._load_at = now
        load = self._load * exp((self._load_at - max(now, self._load_at)) / LOAD_S)
        free = slots - ceil(RESERVE * load)
        are_quick = 0 < self._cost_s <= QUICK_S
        unused = free if are_quick else min(int(slots * IDLE_SHARE), free - 1)
        self.is_busy = unused < 1
        # A quick slice spends most of its time waiting for a slot or for the poll thread.
        share = IDLE_SHARE if are_quick and self.is_due else LEAST_SHARE
        least = max(1, int(slots * share))
        return len(self._out) < (max(least, unused) if idle_slots else least)

    @property
    def is_due(self) -> bool:
        """A slice of retries may go out although new records wait."""
        return self._saved_s >= 0

    def sent(self, slice_: Slice, now: float) -> None:
        """Record that a slice goes out."""
        self._now = now
        if self._load_at < 0:
            self._load_at = now
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
            self._add_load(slice_.elapsed)
            self._saved_s = min(self._saved_s + SHARE * slice_.elapsed, MOST_SAVED_S)
            return
        records = slice_.settled + len(slice_.messages)
        if not (records and slice_.elapsed):
            return
        self._cost_s += _WEIGHT * (slice_.elapsed / records - self._cost_s)
        if charged_s:
            self._saved_s += charged_s - slice_.elapsed

    def _add_load(self, elapsed_s: float) -> None:
        if self._load_at < 0:
            self._load_at = self._now
        within_s = max(LOAD_S, 2 * elapsed_s)
        self._load = self._load * exp((self._load_at - self._now) / within_s) + elapsed_s / within_s
        self._load_at = self._now
