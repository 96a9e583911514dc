"""Lanes whose records fail one after another: what they say of an outage, they have said once.

The records of a hot key that always fail stand in one line. When all others are done, they are all
that is left: by them alone it looks like an outage, and held back they would never leave. So where
many lanes go well, a failed record behind another failed one of its lane is no evidence. Where few
lanes are known, each of them counts: an outage would look the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from window_consumer.core.slices import Lane

MANY: Final = 40
"""So many lanes have returned lately where one that repeats itself says nothing: an outage shows in
the first failures of others, of which the breaker needs 20 by default."""

LATELY_S: Final = 300.0
"""The end of a backlog of hot keys takes longer than the breaker's window."""

_STREAK_S: Final = 60.0
"""Without a failure for so long a lane's next one counts again."""

_MOST: Final = 10_000
"""Lanes that are remembered; beyond them all is forgotten, and counts again."""


class BadLanes:
    """Knows which lanes fail again and again. Owner: poll thread. Cost: two looks a good slice."""

    def __init__(self) -> None:
        self._failed_at: dict[Lane, float] = {}
        self._good: set[Lane] = set()
        self._good_before: set[Lane] = set()
        self._begun = float("-inf")

    def returned(self, lanes: Iterable[Lane | None], now: float) -> None:
        """Note that records of these lanes have returned."""
        if now - self._begun >= LATELY_S:
            self._good_before = self._good if now - self._begun < 2 * LATELY_S else set()
            self._good, self._begun = set(), now
        if self._failed_at:
            for lane in lanes:
                self._failed_at.pop(lane, None)
        if len(self._good) < MANY:
            self._good.update(lane for lane in lanes if lane is not None)

    def is_repeat(self, lane: Lane | None, now: float) -> bool:
        """Note that a new record has failed; tell whether its lane has said that already."""
        if lane is None:
            return False
        if len(self._failed_at) >= _MOST:
            self._failed_at.clear()
        before = self._failed_at.get(lane)
        self._failed_at[lane] = now
        return before is not None and now - before < _STREAK_S and self._many_go_well(now)

    def _many_go_well(self, now: float) -> bool:
        if now - self._begun >= 2 * LATELY_S:
            return False
        return len(self._good) >= MANY or len(self._good | self._good_before) >= MANY
