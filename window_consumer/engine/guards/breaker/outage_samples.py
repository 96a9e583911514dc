"""The samples of an outage: when a record is called to see whether calls succeed again.

A record of a lane that was not sampled yet goes out soon; others follow after a pause that grows
with the outage. If nothing succeeds for ``max_hold`` and nothing new comes, the held records are
called once more, one at a time, and leave if they fail.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from window_consumer.engine.guards.breaker.call_round import CallRound
from window_consumer.engine.guards.breaker_state import (
    BreakerFinding,
    BreakerRules,
    BreakerState,
    Outlook,
)

SAMPLE_S = 0.2
"""The shortest time between two samples of an outage."""

SAMPLE_SHARE = 0.05
"""The time between two samples of known lanes, as a share of the outage's length so far: an outage
of a minute ends at most 3 s late."""

LOOK_S = 0.02
"""How soon it looks again if a sample is due and there is no record to call."""

MOST_SAMPLES = 5
"""The most samples that run at once: a call may hang."""

MOST_WITH_LAG = 20
"""How many records leave per ``max_hold`` while more wait in Kafka behind full windows."""


class OutageSamples:
    """Paces the samples of one worker. Owner: poll thread."""

    limit = 0
    rounds: Sequence[CallRound] = ()

    def __init__(self, rules: BreakerRules):
        self._rules = rules
        self.ends_hold = False
        """Held records are called once more, one at a time, and leave if they fail."""
        self.is_declared = False
        """A user has declared this outage: it ends when a call returns, and not before."""
        self._budget: int | None = None
        """How many held records may leave; None for all."""
        self._running: set[object] = set()
        self._began = 0.0
        self._last_at = 0.0
        self._asked: set[Hashable] = set()
        """Lanes that were sampled in this outage."""
        self._delivered = 0
        self._quiet_since = 0.0
        """When the time without success and without new records began."""

    def begin(self, now: float, *, again: bool) -> None:
        """Begin an outage; ``again`` if it only seemed to be over."""
        if not again:
            self._began = now
            self._asked.clear()
        self._quiet_since = self._last_at = now

    def declare(self) -> None:
        """Obey a user who declares an outage."""
        self.is_declared, self.ends_hold = True, False

    def end(self) -> None:
        """Record that the breaker is no longer open."""
        self.ends_hold = self.is_declared = False
        self._running.clear()

    def started(self, source: object, now: float, lane: Hashable) -> None:
        """Record that a sample goes out."""
        self._running.add(source)
        self._last_at = now
        if lane is not None:
            self._asked.add(lane)

    def let_go(self) -> None:
        """Record that the next sample is a held record, which leaves if it fails."""
        if self._budget is not None:
            self._budget -= 1

    def over(self, source: object) -> None:
        """Record that a slice has ended, or that its call was abandoned."""
        self._running.discard(source)

    def is_running(self, source: object = None) -> bool:
        """Return whether a slice is a running sample; for None, whether any sample runs."""
        return bool(self._running) if source is None else source in self._running

    def was_asked(self, lane: Hashable) -> bool:
        """Return whether a lane was sampled in this outage."""
        return lane in self._asked

    def is_due(self, now: float, *, known: bool) -> bool:
        """Return whether a sample may go out; ``known``: of a lane that was sampled before."""
        if len(self._running) >= MOST_SAMPLES:
            return False
        if self.ends_hold:
            may_leave = self._budget is None or self._budget > 0
            return known and may_leave and not self._running
        return now - self._last_at >= (self._pause_s(now) if known else SAMPLE_S)

    def next_due(self, now: float) -> float:
        """Return when a sample may be due next; a moment from now if only a record is missing."""
        if not self.ends_hold:
            for pause_s in (SAMPLE_S, self._pause_s(now)):
                if now < self._last_at + pause_s:
                    return self._last_at + pause_s
        return now + LOOK_S

    def _pause_s(self, now: float) -> float:
        """Return the time between two samples of known lanes."""
        share_s = min(SAMPLE_SHARE * (now - self._began), self._rules.cool_down_s)
        return max(SAMPLE_S, share_s)

    def judge(self, now: float, outlook: Outlook) -> BreakerFinding | None:
        """Close the breaker if nothing is left to call; stay open, with a reason, see below."""
        if not (outlook.failed or outlook.new or self._running):
            return BreakerFinding(BreakerState.CLOSED, "nothing is left to call")
        why = self.check_end(now, outlook)
        return BreakerFinding(BreakerState.OPEN, why) if why else None

    def check_end(self, now: float, outlook: Outlook) -> str:
        """Begin or stop letting held records leave; return why it begins, else nothing."""
        if self.is_declared:
            return ""
        if outlook.delivered > self._delivered:
            self._delivered, self._quiet_since = outlook.delivered, now
            self.ends_hold = False
        if self.ends_hold:
            if self._budget is not None and self._budget <= 0:
                self.ends_hold = False
                self._quiet_since = now
        elif now - self._quiet_since >= self._rules.max_hold_s:
            self.ends_hold = True
            self._budget = MOST_WITH_LAG if outlook.more else None
            return (
                f"nothing has succeeded for {self._rules.max_hold_s:g} s, and no new records"
                " come: held records that fail again leave"
            )
        return ""
