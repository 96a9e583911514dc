"""Head-of-line release: when a slow record that is not yet stalled may be moved out of the way.

It may be moved only if it is the exception: its window is almost full, and almost everything in it
is done. Each move costs a token that successes have earned, so general slowness and outages move
nothing.
"""

from __future__ import annotations

from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason

FULL = 0.9
"""From this share on a window is almost full: its partition is about to stop."""

DONE = 0.98
"""The share of the window's records that must be done, so that only a few block it."""

DEADLINE_S = 5.0
"""How long a head may run: most slow calls end by then."""

DEADLINE_CALLS = 20.0
"""How many times the usual call duration a head may run."""

SUCCESSES_PER_TOKEN = 1000
MOST_TOKENS = 3
"""How many heads may be moved in a burst; for more, calls must return in between."""


class HeadOfLineRelease:
    """Decides whether one worker's heads of line may be moved. Owner: poll thread."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._counted = 0

    def earn(self, processed: int) -> None:
        """Record how many records have been processed so far."""
        earned = (processed - self._counted) / SUCCESSES_PER_TOKEN
        self._tokens = min(MOST_TOKENS, self._tokens + earned)
        self._counted = processed

    def spend(self) -> bool:
        """Take a token to move one head; False if none is left."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def stuck_head(self, partition: Partition) -> int | None:
        """Return the sequence number of the record that blocks an almost full window, else None."""
        window = partition.window
        held = window.capacity - window.room
        is_tight = HoldReason.METADATA_FULL in partition.holds
        almost_full = is_tight or held >= FULL * window.capacity
        if not window.open or not almost_full or window.open > max(1, (1 - DONE) * held):
            return None
        start = window.cells[0]
        return start.first_open_seq() if start.open else None

    @staticmethod
    def deadline_s(cost_s: float) -> float:
        """Return how long a head may run, given the usual duration of a call."""
        return max(DEADLINE_S, DEADLINE_CALLS * cost_s)
