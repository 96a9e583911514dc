"""The search for the number of calls that can run at once, after an outage or in an overload.

It proceeds in rounds. The number doubles after a round that passes. After a round that fails, it is
halved if the breaker is half-open; in an overload it returns to the last number that passed and
grows by one from there. The number that was too high is tried again ever more rarely.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from window_consumer.engine.guards.breaker.call_round import CallRound
from window_consumer.engine.guards.breaker.departures import HOLD_S
from window_consumer.engine.guards.breaker_state import (
    BreakerFinding,
    BreakerRules,
    BreakerState,
    Outlook,
)

ENOUGH_ROUNDS = 2
"""How many rounds must pass before all slots run again."""

MORE_FAIL = 0.15
"""How much larger the share of failures is where the concurrency is too high."""

CALM_ROUNDS = 20
"""How many rounds pass before a concurrency at which too many failed is tried again."""

CALMEST_ROUNDS = 320
"""They double each time it fails, up to this."""

BACK_OFF = 0.9
"""The factor for a concurrency that passed before and no longer does."""


ALL_SLOTS = "calls succeed in all slots"
ANY_NUMBER = "as many calls fail however few run"
SOME_PLACES = "records of some places succeed, others do not"


class LoadSearch:
    """The rounds of one worker. Owner: poll thread."""

    def __init__(self, rules: BreakerRules):
        self._rules = rules
        self.limit = 0
        """The most calls that may run."""
        self.overload = False
        self._present = self._all = CallRound(inf, 0.0)
        """The present round, and all rounds together if they may show poison."""
        self._passed = 0
        self._proven = 1
        """The number that passed last."""
        self._too_many = 0
        """The number at which too many calls failed; 0 if unknown."""
        self._empty = 0
        """How many rounds of an overload in a row had no success."""
        self._calm = 0
        """How many rounds have succeeded since too many calls failed."""
        self._calm_rounds = CALM_ROUNDS
        self._usual_share = 0.0
        """The share of calls that fail when few run."""

    def begin(self, limit: int, now: float, *, usual_share: float | None = None) -> None:
        """Begin with ``limit`` calls; in an overload ``usual_share`` of them fails."""
        self.overload = usual_share is not None
        self._usual_share = usual_share or 0.0
        self._passed, self._too_many, self._proven = limit - 1, 0, limit
        self._empty = self._calm = 0
        self._calm_rounds = CALM_ROUNDS
        self._all = CallRound(inf, now)
        self._continue_with(limit, now)

    @property
    def rounds(self) -> Sequence[CallRound]:
        """The present round, and all rounds unless so many calls run that healthy ones fail."""
        if self.overload and self.limit > self._proven:
            return (self._present,)
        return self._present, self._all

    def judge(self, now: float, outlook: Outlook) -> BreakerFinding | None:
        """Judge the present round if it is over; begin the next one if nothing is found."""
        seen = self._present
        if not seen.is_over(now, self._rules.cool_down_s, starved=not outlook.ready):
            return None
        if seen.later > seen.bad and not seen.ok:
            return BreakerFinding(BreakerState.PAUSED, "a record asked to be called later")
        if seen.ok or seen.bad:
            return self._judge_calls(seen, now, outlook.slots)
        if not (outlook.failed or outlook.new):
            return BreakerFinding(BreakerState.CLOSED, "nothing is left to call")
        self._continue_with(self.limit, now)
        return None

    def _judge_calls(self, seen: CallRound, now: float, slots: int) -> BreakerFinding | None:
        if self._none_succeed():
            why = f"none of {seen.ok + seen.bad} calls succeeded"
            return BreakerFinding(BreakerState.OPEN, why)
        if self._all.only_some_succeed(self._rules.failures):
            return BreakerFinding(BreakerState.POISON, SOME_PLACES)
        return self._follow_load(now, slots) if self.overload else self._open_up(now, slots)

    def next_due(self, now: float) -> float:
        """See StateSearch."""
        return now + HOLD_S

    def _none_succeed(self) -> bool:
        """Return whether too many rounds have passed without a success, this one included."""
        is_proven = self.limit <= self._proven if self.overload else self._passed < ENOUGH_ROUNDS
        if self._present.ok or not is_proven:
            self._empty = 0
            return False
        self._empty += 1
        return not self.overload or self._empty >= ENOUGH_ROUNDS

    def _open_up(self, now: float, slots: int) -> BreakerFinding | None:
        seen, limit = self._present, self.limit
        hardly_fail = seen.bad <= MORE_FAIL * (seen.ok + seen.bad)
        if not seen.passes(self._rules.failures):
            if self._too_many and limit >= self._too_many:
                self.overload, self._proven = True, max(1, limit // 2)
                self._calm = 0
                self._continue_with(self._proven, now)
                calls = seen.ok + seen.bad
                why = f"with {limit} calls at once, {seen.bad} of {calls} fail"
                return BreakerFinding(BreakerState.OVERLOAD, why)
            self._too_many = limit if self._passed else 0
            self._continue_with(max(1, limit // 2), now)
        elif self._passed + 1 >= ENOUGH_ROUNDS and limit >= (slots / 2 if hardly_fail else slots):
            return BreakerFinding(BreakerState.POISON, ALL_SLOTS)
        else:
            self._passed += 1
            self._continue_with(min(2 * limit, slots), now)
        return None

    def _follow_load(self, now: float, slots: int) -> BreakerFinding | None:
        seen, limit = self._present, self.limit
        if seen.bad > (self._usual_share + MORE_FAIL) * (seen.ok + seen.bad):
            if limit == 1:
                return BreakerFinding(BreakerState.POISON, ANY_NUMBER)
            if limit <= self._proven:
                # That may have been a moment: up to this number it grows again at once.
                self._proven, self._too_many = max(1, int(limit * BACK_OFF)), limit + 1
            else:
                if self._too_many:
                    self._calm_rounds = min(2 * self._calm_rounds, CALMEST_ROUNDS)
                self._too_many = limit
            self._calm = 0
            self._continue_with(self._proven, now)
        elif limit >= slots:
            return BreakerFinding(BreakerState.POISON, ALL_SLOTS)
        else:
            self._proven = max(self._proven, limit)
            self._calm += 1
            self._continue_with(self._next(slots), now)
        return None

    def _next(self, slots: int) -> int:
        """Return the number after a round of an overload that passed."""
        if not self._too_many:
            return min(2 * self.limit, slots)
        waits = self.limit + 1 >= self._too_many and self._calm < self._calm_rounds
        return self.limit if waits else self.limit + 1

    def _continue_with(self, limit: int, now: float) -> None:
        self.limit = limit
        self._present = CallRound(max(3, limit) if self.overload else limit, now)
