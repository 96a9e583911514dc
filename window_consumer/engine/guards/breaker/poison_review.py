"""The review of poison: everything runs, and calls show whether it is over or was none.

Rounds of calls take as many records from each place of the windows. If those of no place succeed,
something else makes them fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from window_consumer.engine.guards.breaker.call_round import CallRound
from window_consumer.engine.guards.breaker.departures import HOLD_S
from window_consumer.engine.guards.breaker_state import (
    BreakerFinding,
    BreakerRules,
    BreakerState,
    Outlook,
)

POISON_S = 5.0
"""How long few records must fail before poison is forgotten."""


class PoisonReview:
    """What happens to the calls of one worker since there is poison. Owner: poll thread."""

    limit = None

    def __init__(self, rules: BreakerRules):
        self._rules = rules
        self.rounds: Sequence[CallRound] = ()
        """The present round; none while a user has said that it is poison."""
        self._since = self._last_ok = self._last_bad = 0.0
        self._failed = self._new_failed = 0
        """How many calls failed since one returned, and how many of them were of new records."""

    def begin(self, now: float, *, by_user: bool) -> None:
        """Begin when poison is found, or when a user says so: then no round contradicts."""
        self._since = self._last_ok = self._last_bad = now
        self._failed = self._new_failed = 0
        self.rounds = ()
        if not by_user:
            self._begin_round(now)

    def returned(self, now: float) -> None:
        """Record that a call has returned."""
        self._last_ok = now
        self._failed = self._new_failed = 0

    def failed(self, *, is_new: bool) -> None:
        """Record a call that failed."""
        self._failed += 1
        self._new_failed += is_new

    def many_fail(self, now: float) -> None:
        """Record that more of the last new records failed than allowed."""
        self._last_bad = now

    def judge(self, now: float, outlook: Outlook) -> BreakerFinding | None:
        """Close the breaker when few records fail; let it hold again when none succeeds."""
        if outlook.released:
            return None  # a user knows better
        least = self._rules.min_calls
        for each in self.rounds:
            if each.is_over(now, POISON_S, starved=False):
                self._begin_round(now)
                if now - self._since >= HOLD_S and self._fails_everywhere(each):
                    calls = each.ok + each.bad
                    return _hold(f"{each.bad} of {calls} calls failed, in all places")
        silent_s = now - self._last_ok
        if self._new_failed >= least and silent_s >= HOLD_S:
            return _hold(f"{self._new_failed} new records in a row failed")
        if silent_s >= POISON_S and outlook.held < least:
            return _CLOSE
        if silent_s >= POISON_S and self._failed:
            return _hold(f"nothing has succeeded for {silent_s:.0f} s")
        few_fail = now - self._last_bad >= POISON_S and not outlook.held
        return _CLOSE if few_fail else None

    def next_due(self, now: float) -> float:
        """See StateSearch."""
        return now + HOLD_S

    def _begin_round(self, now: float) -> None:
        least = self._rules.min_calls
        self.rounds = (CallRound(least, now, of_each=least / 2),)

    def _fails_everywhere(self, seen: CallRound) -> bool:
        return seen.has_kinds(2) and not seen.some_succeed(self._rules.failures)


_CLOSE = BreakerFinding(BreakerState.CLOSED, "few records fail")


def _hold(why: str) -> BreakerFinding:
    return BreakerFinding(BreakerState.HOLDING, why)
