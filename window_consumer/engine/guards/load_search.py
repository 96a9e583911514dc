"""The search for the number of calls that can run at once, after an outage or in an overload.

It proceeds in rounds. The number doubles after a round that passes. After a round that fails, it is
halved if the breaker is half-open; in an overload it returns to the last number that passed and
grows by one from there. The number that was too high is tried again ever more rarely.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import inf

from window_consumer.engine.guards.call_round import CallRound

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


class LoadFinding(Enum):
    """The finding of a round."""

    NOTHING = "nothing"
    NONE_SUCCEED = "none succeed"
    SOME_PLACES = "records of some places succeed, others do not"
    OVERLOAD = "fewer fail when fewer run"
    ANY_NUMBER = "as many calls fail however few run"
    ALL_SLOTS = "calls succeed in all slots"


class LoadSearch:
    """The rounds of one worker. Owner: poll thread."""

    def __init__(self, failures: float):
        self._failures = failures
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
        """How many rounds have passed since then."""
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

    def judge(self, now: float, slots: int) -> LoadFinding:
        """Judge the present round, which is over, and begin the next one."""
        if not self._present.ok and (
            self.limit <= self._proven if self.overload else self._passed < ENOUGH_ROUNDS
        ):
            self._empty += 1
            if not self.overload or self._empty >= ENOUGH_ROUNDS:
                return LoadFinding.NONE_SUCCEED
        else:
            self._empty = 0
        if self._all.only_some_succeed(self._failures):
            return LoadFinding.SOME_PLACES
        return self._follow_load(now, slots) if self.overload else self._open_up(now, slots)

    def repeat(self, now: float) -> None:
        """Restart the present round: nothing could be called."""
        self._continue_with(self.limit, now)

    def _open_up(self, now: float, slots: int) -> LoadFinding:
        seen, limit = self._present, self.limit
        hardly_fail = seen.bad <= MORE_FAIL * (seen.ok + seen.bad)
        if not seen.passes(self._failures):
            if self._too_many and limit >= self._too_many:
                self.overload, self._proven = True, max(1, limit // 2)
                self._calm = 0
                self._continue_with(self._proven, now)
                return LoadFinding.OVERLOAD
            self._too_many = limit if self._passed else 0
            self._continue_with(max(1, limit // 2), now)
        elif self._passed + 1 >= ENOUGH_ROUNDS and limit >= (slots / 2 if hardly_fail else slots):
            return LoadFinding.ALL_SLOTS
        else:
            self._passed += 1
            self._continue_with(min(2 * limit, slots), now)
        return LoadFinding.NOTHING

    def _follow_load(self, now: float, slots: int) -> LoadFinding:
        seen, limit = self._present, self.limit
        if seen.bad > (self._usual_share + MORE_FAIL) * (seen.ok + seen.bad):
            if limit == 1:
                return LoadFinding.ANY_NUMBER
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
            return LoadFinding.ALL_SLOTS
        else:
            self._proven = max(self._proven, limit)
            self._calm += 1
            self._continue_with(self._next(slots), now)
        return LoadFinding.NOTHING

    def _next(self, slots: int) -> int:
        """Return the number after a round of an overload that passed."""
        if not self._too_many:
            return min(2 * self.limit, slots)
        waits = self.limit + 1 >= self._too_many and self._calm < self._calm_rounds
        return self.limit if waits else self.limit + 1

    def _continue_with(self, limit: int, now: float) -> None:
        self.limit = limit
        self._present = CallRound(max(3, limit) if self.overload else limit, now)
