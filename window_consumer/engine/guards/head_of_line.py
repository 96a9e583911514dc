"""Head-of-line relief: when a slow record that is not stalled yet may be moved out of the way.

Only where it is the exception: its window is almost full, and almost everything in it is done. And
only for tokens that successes have earned, so that general slowness and outages move nothing.
"""

from __future__ import annotations

from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason

FULL = 0.9
"""From this share of a window on it is almost full: its partition is about to stand still ..."""

DONE = 0.98
"""... because of a few records, when this share of what is in it is done."""

DEADLINE_S = 5.0
"""A head may run for this long: most slow calls end by then ..."""

DEADLINE_CALLS = 20.0
"""... and for so many times what a call usually takes."""

SUCCESSES_PER_TOKEN = 1000
MOST_TOKENS = 3
"""A burst of slow records moves a few; for more of them calls have to return in between."""


class HeadOfLineRelease:
    """Decides whether heads may be moved; one worker's. Owner: poll thread."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._counted = 0

    def earn(self, processed: int) -> None:
        """Note how many records have been processed so far in all."""
        earned = (processed - self._counted) / SUCCESSES_PER_TOKEN
        self._tokens = min(MOST_TOKENS, self._tokens + earned)
        self._counted = processed

    def spend(self) -> bool:
        """Take a token for moving one head; False where none is left."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def stuck_head(self, partition: Partition) -> int | None:
        """Return the first open record of a window that it holds up, None where none does."""
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
        """Return how long a head may run, given what a call usually takes."""
        return max(DEADLINE_S, DEADLINE_CALLS * cost_s)
