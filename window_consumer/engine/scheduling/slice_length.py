"""How many records a slice holds, learnt from the durations of calls."""

from __future__ import annotations

SLICE_TARGET_S = 0.005
"""The target duration of a slice: long compared with a hand-over (some 20 us), imperceptible to a
person."""

TURN_S = 0.05
"""The target duration of a slice if no other slot could run its records. Between two such slices
the lane idles during the hand-over, some 0.2 to 0.5 ms."""

TURN_RECORDS = 50
"""The most records in such a slice: a call may have seemed quick by chance."""

SMALL_CHANGE_S = 0.0005
"""Work shorter than this is not worth a separate slot: it waits for more records."""

MAX_SLICES_PER_S = 5000
"""Above this rate, a slice holds several records if enough wait. With many slots and slow handlers,
hand-overs and thread switches would otherwise be most of the work."""

MAX_SHARED = 16
"""The most records such a slice holds."""

SHARED_QUEUED = 0.25
"""How many queued slices per slot are enough if slow records share slices: each holds many calls.
New slices are then as long as possible, because the poll thread's work is per slice."""

QUICK_S = 0.0001
"""If a call is quicker than this, waiting work is measured in slices: a batch takes no time."""


class SliceLength:
    """How many records a slice should hold so that it takes about ``target_s`` seconds.

    Learnt from decayed sums of time and records, so that each slice weighs as much as it holds: one
    slow record would distort a mean of means. Starts at one record. Owner: poll thread.
    """

    _DECAY_RECORDS = 2000.0
    """A record's weight halves after some 1,400 others."""
    _DECAY_S = 2.0
    """It also halves after 1.4 s of handler time, so that a few calls of a slow handler suffice."""

    def __init__(self, target_s: float, max_records: int):
        self._target_s = target_s
        self._max_records = max_records
        self._seconds = 0.0
        self._records = 0.0
        self._new_seconds = 0.0
        self._new_records = 0
        self.cost_s = target_s
        """The estimated seconds that one record takes."""
        self.records = 1
        """The length of a full slice."""

    @property
    def has_learnt(self) -> bool:
        """``cost_s`` was learnt from completed slices."""
        return self._records > 0

    @property
    def is_quick(self) -> bool:
        """A hand-over costs more than waiting, so records go in long slices and full batches."""
        return self.cost_s < QUICK_S

    @property
    def worth_a_slot(self) -> int:
        """How many records are worth a separate slot."""
        return max(1, int(SMALL_CHANGE_S / self.cost_s))

    @property
    def turn_records(self) -> int:
        """How many records go at once if no other slot could take them; 0 if unknown."""
        if not self.has_learnt or self.is_quick:
            return 0
        return max(1, min(int(TURN_S / self.cost_s), TURN_RECORDS))

    def most_shared(self, slots: int) -> int:
        """Return how many slow records share a slice if enough wait; 0 or 1 if none do."""
        return min(MAX_SHARED, int(slots / (self.cost_s * MAX_SLICES_PER_S)))

    def record(self, records: int, seconds: float) -> None:
        """Record a completed slice."""
        self._new_records += records
        self._new_seconds += seconds

    def learn(self) -> None:
        """Update the estimates from the recorded slices."""
        if not self._new_records:
            return
        kept = 1.0 / (
            1.0 + self._new_records / self._DECAY_RECORDS + self._new_seconds / self._DECAY_S
        )
        self._seconds = self._seconds * kept + self._new_seconds
        self._records = self._records * kept + self._new_records
        self._new_seconds, self._new_records = 0.0, 0
        self.cost_s = max(self._seconds / self._records, 1e-9)
        self.records = max(1, min(self._max_records, int(self._target_s / self.cost_s)))
