"""The search for the cause of many failures, while the breaker holds.

It proceeds in rounds. In the first one all slots run. If records from some places of the windows
succeed while as many calls run as when the failures came, the rest are poison. Otherwise fewer
calls run for a round, to see whether fewer fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from window_consumer.engine.guards.breaker.call_round import ENOUGH_LANES, CallRound
from window_consumer.engine.guards.breaker.departures import HOLD_S
from window_consumer.engine.guards.breaker_state import (
    BreakerFinding,
    BreakerRules,
    BreakerState,
    Outlook,
)

TRIAL_SHARE = 4
"""The slots are divided by this to see whether fewer calls fail when fewer run."""

_LIKE_BEFORE = 0.5
"""A round is evidence of poison only if at least this share of the calls that ran when the failures
came ran at the same time as its own."""


class CauseSearch:
    """The rounds of one worker. Owner: poll thread."""

    def __init__(self, rules: BreakerRules):
        self._rules = rules
        self.round: CallRound | None = None
        """The present round; None while nothing is searched."""
        self.limit: int | None = None
        """How many calls may run; None for as many as there are slots."""
        self.calls = 1
        """In an overload, how many calls can run."""
        self.share = 0.0
        """The share of them that still fails."""
        self._began = 0.0
        self._crowd = 0
        self._tried = False
        self._passed = False
        """A round in which all slots ran has passed. In an overload its calls may have been the
        first that found room, so another round follows that fills all slots."""
        self._ok_lanes = 0
        """Lanes in which calls succeeded, in all rounds: a service that answers once is down."""

    def begin(self, now: float, slots: int, crowd: int) -> None:
        """Begin; ``crowd`` calls ran when the failures came."""
        self._began, self._crowd = now, crowd
        self._tried = self._passed = False
        self._ok_lanes = 0
        self._ask(now, slots)

    def end(self) -> None:
        """Record that the breaker no longer holds."""
        self.round = self.limit = None

    def judge(self, now: float, outlook: Outlook) -> BreakerFinding | None:
        """Judge the present round if it is over; begin the next one if the cause is unknown.

        An outage has no reason of its own if nothing was called.
        """
        seen = self.round
        assert seen is not None  # it begins with the state
        starved = not outlook.ready and (seen.started >= ENOUGH_LANES or now - seen.since >= HOLD_S)
        if not seen.is_over(now, self._rules.cool_down_s, starved=starved):
            return None
        calls = seen.ok + seen.bad + seen.later
        if seen.later > seen.bad and seen.later + seen.bad > self._rules.failures * calls:
            why = f"{seen.later} of {calls} calls asked to be called later"
            return BreakerFinding(BreakerState.PAUSED, why)
        if self.limit is not None:
            return self._compare(seen, self.limit, now, outlook.slots)
        return self._judge_all(seen, now, outlook.slots)

    @property
    def rounds(self) -> Sequence[CallRound]:
        """The present round, if there is one."""
        return () if self.round is None else (self.round,)

    def next_due(self, now: float) -> float:
        """See StateSearch."""
        return now + HOLD_S

    def _judge_all(self, seen: CallRound, now: float, slots: int) -> BreakerFinding | None:
        """Decide after a round in which all slots ran."""
        passes = seen.passes(self._rules.failures)
        is_poison = passes if self._passed else seen.only_some_succeed(self._rules.failures)
        if seen.started >= ENOUGH_LANES and is_poison:
            if seen.crowd >= _LIKE_BEFORE * self._crowd:
                return _poison_beside(seen)
            return self._find_overload(seen, seen.crowd)
        self._ok_lanes += seen.ok_lanes
        if seen.started < ENOUGH_LANES or (self._tried and not seen.ok):
            return self._give_up_or_ask(seen, now, slots)
        if passes:
            self._passed, self.round = True, CallRound(max(slots, self._rules.min_calls), now)
            return None
        self._try_with(max(1, slots // TRIAL_SHARE), now)
        return None

    def _compare(
        self, seen: CallRound, limit: int, now: float, slots: int
    ) -> BreakerFinding | None:
        """Decide after a round with fewer calls."""
        if seen.only_some_succeed(self._rules.failures):
            return _poison_beside(seen)
        if seen.passes(self._rules.failures):
            return self._find_overload(seen, limit)
        self._ok_lanes += seen.ok_lanes
        if self._ok_lanes and limit > 1:
            self._try_with(max(1, limit // TRIAL_SHARE), now)
            return None
        if self._ok_lanes >= ENOUGH_LANES:
            return BreakerFinding(BreakerState.POISON, "as many calls fail when fewer run")
        self.limit = None
        return self._give_up_or_ask(seen, now, slots)

    def _find_overload(self, seen: CallRound, limit: int) -> BreakerFinding:
        calls = seen.ok + seen.bad
        self.calls, self.share = limit, seen.bad / calls
        why = f"with {limit} calls at once, {seen.ok} of {calls} succeed"
        return BreakerFinding(BreakerState.OVERLOAD, why)

    def _give_up_or_ask(self, seen: CallRound, now: float, slots: int) -> BreakerFinding | None:
        """Find an outage if nothing has succeeded for long enough, or ask again."""
        if now - self._began >= HOLD_S:
            why = f"{seen.bad} of {seen.bad} calls failed" if seen.bad else ""
            return BreakerFinding(BreakerState.OPEN, why)
        self._ask(now, slots)
        return None

    def _try_with(self, calls: int, now: float) -> None:
        """Let fewer calls run for one round."""
        self._tried, self.limit = True, calls
        self.round = CallRound(max(ENOUGH_LANES, min(calls, self._rules.min_calls)), now)

    def _ask(self, now: float, slots: int) -> None:
        self.limit, self.round = None, CallRound(min(slots, self._rules.min_calls), now)


def _poison_beside(seen: CallRound) -> BreakerFinding:
    why = f"{seen.ok} of {seen.ok + seen.bad} calls succeeded"
    return BreakerFinding(BreakerState.POISON, why)
