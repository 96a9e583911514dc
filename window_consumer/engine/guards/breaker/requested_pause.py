"""The pause that records ask for with RetryLater: nothing starts before its end."""

from __future__ import annotations

from collections.abc import Sequence

from window_consumer.engine.guards.breaker.call_round import CallRound
from window_consumer.engine.guards.breaker_state import (
    BreakerFinding,
    BreakerRules,
    BreakerState,
    Outlook,
)

SHORTEST_PAUSE_S = 0.1
"""The shortest pause: records that ask for an immediate call are not called more often."""


class RequestedPause:
    """How long the calls of one worker pause. Owner: poll thread."""

    limit = 0
    rounds: Sequence[CallRound] = ()

    def __init__(self, rules: BreakerRules):
        self._rules = rules
        self.asked_s = 0.0
        """The wait that the last record which asked to be called later wants."""
        self._ends_at = 0.0

    @property
    def length_s(self) -> float:
        """How long a pause is that begins now."""
        return min(max(self.asked_s, SHORTEST_PAUSE_S), self._rules.cool_down_s)

    def begin(self, now: float) -> None:
        """Begin a pause."""
        self._ends_at = now + self.length_s

    def judge(self, now: float, _outlook: Outlook) -> BreakerFinding | None:
        """Let a single call begin when the pause is over."""
        if now < self._ends_at:
            return None
        return BreakerFinding(BreakerState.HALF_OPEN, "the pause is over")

    def next_due(self, _now: float) -> float:
        """Return when it ends."""
        return self._ends_at
