"""The circuit breaker: keeps a general outage from emptying a topic into the dead letters.

It judges by *new records*: those whose handler is called for the first time since they were
delivered from a source topic, or were put back. Retries and copies in retry levels show how bad
some records are, not whether there is an outage: they neither open nor reopen it.

========= ============================ ====================================================
state     meaning                      leaves
========= ============================ ====================================================
closed    normal operation             to holding when most of the last ``min_calls`` new records
                                       failed or asked to be called later
holding   calls continue, but records  to closed when enough of the last new records returned, or
          whose attempts are spent     after HOLD_S if the failures are too few for an outage. To
          do not leave                 open when more than ``failures`` of the new records failed,
                                       beyond chance: within ``window``, or after HOLD_S among the
                                       last ones. Calls that began before and still run count as
                                       returned until ``cool_down`` is over. To paused when most
                                       asked to be called later
open      nothing starts, nothing      to half-open when ``cool_down`` is over
          leaves
paused    as open, and no attempt      to half-open when the requested time is over, at most
          is spent                     ``cool_down``
half-open one new record at a time;    to closed when a new record returns, or a retry if no new
          if there is none, one        record is called, or when no failed record is left; to open
          retry; nothing leaves        when PROBES new records failed, or one hangs; to paused when
                                       the probe asks to be called later. A failed retry changes
                                       nothing
========= ============================ ====================================================

Only a failure that another call could resolve counts. A call that says nothing about the handler's
environment (Fatal, Skip) does not count at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from attrs import evolve, frozen

from window_consumer.engine.guards.outage_evidence import OutageEvidence

HOLD_S = 0.5
"""How long it holds until the last records decide: longer than a reconnect and than the first local
retry."""

FORGIVEN_S = 0.1
"""Records whose attempts were spent while it held at least this long are called once more. Shorter
holds come from a run of bad records."""

SETTLE_S = 0.02
"""How long after its last attempt a spent record leaves: by then it shows whether it was the first
of many."""

AT_ONCE = 5
"""How many spent records may leave sooner within SETTLE_S: too few for an outage."""

PROBES = 3
"""How many new records must fail to reopen it: a single bad record must not keep it open."""

SHORTEST_PAUSE_S = 0.1
"""The shortest pause: records that ask for an immediate call are not called more often."""

_NEVER = float("-inf")


@frozen
class BreakerRules:
    """The ``breaker`` section of a worker's configuration; durations in seconds."""

    failures: float = 0.5
    """Above this share of failed new records it holds and opens; at 1.0 when all of them failed."""
    window_s: float = 30.0
    min_calls: int = 20
    cool_down_s: float = 30.0
    enabled: bool = True


class BreakerState(StrEnum):
    """What the breaker lets through."""

    CLOSED = "closed"
    HOLDING = "holding"
    OPEN = "open"
    PAUSED = "paused"
    HALF_OPEN = "half-open"


_NEXT: Mapping[BreakerState, frozenset[BreakerState]] = {
    BreakerState.CLOSED: frozenset({BreakerState.HOLDING}),
    BreakerState.HOLDING: frozenset({BreakerState.CLOSED, BreakerState.OPEN, BreakerState.PAUSED}),
    BreakerState.OPEN: frozenset({BreakerState.HALF_OPEN}),
    BreakerState.PAUSED: frozenset({BreakerState.HALF_OPEN}),
    BreakerState.HALF_OPEN: frozenset(
        {BreakerState.CLOSED, BreakerState.OPEN, BreakerState.PAUSED}
    ),
}


@frozen
class BreakerNews:
    """A change of the breaker's state, or a further pardon while it is half-open."""

    state: BreakerState
    why: str
    """The reason, as text."""
    worth_a_line: bool = True
    """False for holding, which comes and goes with every handful of bad records."""
    pardon: bool = False
    """Records whose attempts were spent in the meantime are called once more."""
    once: bool = False
    """Records that an earlier hold pardoned are excluded: it holds often if many are bad."""


class CircuitBreaker:
    """Records all calls of one worker and decides what may proceed. Owner: poll thread."""

    def __init__(self, rules: BreakerRules):
        self.rules = rules
        self.state = BreakerState.CLOSED
        self.probe: object | None = None
        """The call of a new record that probes while it is half-open."""
        self.trial: object | None = None
        """A retry that probes because there was no new record."""
        self.since = _NEVER
        """When it entered this state; initially the first ``advance``."""
        self._evidence = OutageEvidence(rules.failures, rules.window_s, rules.min_calls)
        self._probes_failed = 0
        self._ends_at = 0.0
        """When the pause ends; when half-open, when the probe's time is up."""
        self._at_once = 0
        self._at_once_until = 0.0
        self._last_error = ""
        self.why = ""
        """Why it last opened or paused."""
        self._asked_s = 0.0
        """How long the last record that asked to be called later wants to wait."""
        self._news: list[BreakerNews] = []

    # ---- events

    def returned(
        self, calls: int, now: float, source: object = None, *, is_new: bool = True
    ) -> None:
        """Record calls of a slice that returned; ``source`` identifies a probe."""
        if not self.rules.enabled or not calls:
            return
        if self.lets_start:
            if is_new:
                self._evidence.record(calls, now)
                if self.state is BreakerState.HOLDING and not self._evidence.is_bad:
                    pardon = now - self.since >= FORGIVEN_S
                    self._enter(BreakerState.CLOSED, now, "", pardon=pardon)
                    self._news[-1] = evolve(self._news[-1], once=True)
        elif self.state is BreakerState.HALF_OPEN and self._decides(source):
            self._start_anew()
            self._enter(BreakerState.CLOSED, now, "a call has returned", pardon=True)

    def failed(self, now: float, error: str, source: object = None, *, is_new: bool = True) -> None:
        """Record a failure that another call could resolve; ``error`` is its text."""
        if not self.rules.enabled:
            return
        if self.lets_start:
            if is_new:
                self._last_error = error
                self._evidence.record(1, now, failed=1)
                self._judge(now)
        elif self.state is BreakerState.HALF_OPEN and self._is_probe(source):
            self._last_error = error
            self._probe_failed(now)

    def asked_later(
        self, now: float, after_s: float, source: object = None, *, is_new: bool = True
    ) -> None:
        """Record a call that asked to be repeated after a time (RetryLater)."""
        if not self.rules.enabled:
            return
        if self.lets_start:
            if is_new:
                self._asked_s = after_s
                self._evidence.record(1, now, later=1)
                self._judge(now)
        elif self.state is BreakerState.HALF_OPEN and self._decides(source):
            self._asked_s = after_s
            self._pause(now, "a record asked to be called later")

    def advance(
        self, now: float, *, may_retry: bool = False, unknown: int = 0
    ) -> list[BreakerNews]:
        """Advance the time; return the state changes since the last call.

        ``may_retry`` says whether some failed record will be called again, or may be. ``unknown``
        is how many new records have been running since before it held.
        """
        if self.since == _NEVER:
            self.since = now
        if self.state is BreakerState.HOLDING:
            self._decide_held(now, unknown)
        elif self.state is BreakerState.OPEN:
            if now - self.since >= self.rules.cool_down_s:
                self._half_open(now, "the cool-down is over")
        elif self.state is BreakerState.PAUSED:
            if now >= self._ends_at:
                self._half_open(now, "the pause is over")
        elif self.state is BreakerState.HALF_OPEN and now >= self._ends_at:
            self._find_out_otherwise(now, may_retry=may_retry)
        news, self._news = self._news, []
        return news

    def probing(self, source: object, now: float, *, is_new: bool = True) -> None:
        """Record which call is the probe; it has as long as a cool-down takes."""
        if is_new:
            self.probe = source
        else:
            self.trial = source
        self._ends_at = now + self.rules.cool_down_s

    def probe_is_back(self, source: object) -> None:
        """Record that a probe is over; if it was inconclusive, another one follows."""
        if source is self.probe:
            self.probe = None
        if source is self.trial:
            self.trial = None

    # ---- queries

    @property
    def lets_start(self) -> bool:
        """Calls may start freely."""
        state = self.state
        return state is BreakerState.CLOSED or state is BreakerState.HOLDING

    @property
    def wants_probe(self) -> bool:
        """One new record may start."""
        return self.state is BreakerState.HALF_OPEN and self.probe is None

    @property
    def wants_trial(self) -> bool:
        """One retry may start if no new record can."""
        return self.wants_probe and self.trial is None

    @property
    def spares(self) -> bool:
        """A record that asks to be called later is not charged: most new records ask."""
        return self.state is BreakerState.PAUSED or (
            self.state is BreakerState.HALF_OPEN and self._evidence.most_asked
        )

    def is_finding_out(self, source: object) -> bool:
        """Return whether a call is a probe."""
        return source is not None and (source is self.probe or source is self.trial)

    def lets_leave(
        self, spent_at: float, now: float, *, in_a_hurry: bool = False, later: bool = False
    ) -> bool:
        """Return whether a record whose attempts were spent at ``spent_at`` may leave now.

        With ``later``, its last call asked to be called later: it would have waited anyway.
        """
        if self.state is not BreakerState.CLOSED:
            return False
        settled = spent_at <= now - (HOLD_S if later else SETTLE_S)
        if not self.rules.enabled or in_a_hurry or settled:
            return True
        if later:
            return False
        if now >= self._at_once_until:
            self._at_once_until = now + SETTLE_S
            self._at_once = 0
        self._at_once += 1
        return self._at_once <= AT_ONCE

    def settled_at(self, spent_at: float, *, later: bool = False) -> float:
        """Return when a record may leave at the latest, in the present state."""
        if self.state is not BreakerState.CLOSED:
            return float("inf")
        return spent_at + (HOLD_S if later else SETTLE_S)

    def next_look(self) -> float:
        """Return when it has to be checked again even if nothing happens."""
        if self.state is BreakerState.HOLDING:
            return self._ends_at
        if self.state is BreakerState.OPEN:
            return self.since + self.rules.cool_down_s
        if self.state is BreakerState.CLOSED:
            return float("inf")
        return self._ends_at

    def calls_within_window(self, now: float) -> tuple[int, int]:
        """Return how many new records failed within the window, and how many were called."""
        seen = self._evidence.window(now)
        return seen.failed, seen.calls

    # ---- rules

    def _judge(self, now: float) -> None:
        """Decide after a new record that did not return."""
        if self.state is BreakerState.CLOSED and self._evidence.is_bad:
            self._evidence.begin()
            self._enter(BreakerState.HOLDING, now, "")
            self._ends_at = now + HOLD_S

    def _decide_held(self, now: float, unknown: int) -> None:
        """Open or pause on clear evidence; after HOLD_S close, unless that may still come.

        ``unknown`` calls began before it held. Immediate failures are recorded before slow
        successes, so these calls count as returned.
        """
        evidence, seen = self._evidence, self._evidence.window(now)
        last = evidence.last
        held_s = now - self.since
        if held_s >= self.rules.cool_down_s:
            unknown = 0  # they have run too long to wait for
        lately = [last, evidence.since] if held_s >= HOLD_S else []

        def is_clear(bad: str, more: int = 0) -> bool:
            return any(
                evidence.is_beyond_chance(getattr(each, bad) + more, each.calls + unknown)
                for each in (seen, *lately)
            )

        if evidence.is_beyond_chance(seen.failed, seen.calls + unknown):
            share = f"{seen.failed} of {seen.calls} new records failed"
            self._open(now, f"{share} within {self.rules.window_s:g} s")
        elif is_clear("failed"):
            self._open(now, f"{last.failed} of the last {last.calls} new records failed")
        elif is_clear("bad") or (
            evidence.most_asked and evidence.is_beyond_chance(last.bad, last.calls + unknown)
        ):
            self._pause(now, self._who_asked)
        elif held_s >= HOLD_S and not (unknown and is_clear("bad", unknown)):
            # Too few for an outage, and no more have come: spent records leave. The next new record
            # that fails makes it hold again.
            self._enter(BreakerState.CLOSED, now, "")
        elif held_s >= HOLD_S:
            self._ends_at = self.since + self.rules.cool_down_s

    def _find_out_otherwise(self, now: float, *, may_retry: bool) -> None:
        """Proceed while half-open if the probe hangs, or if there was none."""
        if self.probe is not None:
            self.probe = None
            self._enter(BreakerState.OPEN, now, "the probe does not return")
            return
        self.trial = None
        self._ends_at = now + self.rules.cool_down_s
        if may_retry:
            self._news.append(BreakerNews(self.state, "", worth_a_line=False, pardon=True))
        else:
            self._enter(BreakerState.CLOSED, now, "nothing is left to call", pardon=True)

    @property
    def _who_asked(self) -> str:
        last = self._evidence.last
        return f"{last.later} of the last {last.calls} new records asked to be called later"

    def _probe_failed(self, now: float) -> None:
        self.probe = None
        self._probes_failed += 1
        if self._probes_failed >= PROBES:
            self._open(now, f"{PROBES} new records in a row failed")

    def _half_open(self, now: float, why: str) -> None:
        self._probes_failed = 0
        self._enter(BreakerState.HALF_OPEN, now, why, pardon=True)

    def _open(self, now: float, why: str) -> None:
        self._enter(BreakerState.OPEN, now, f"{why}, the last one with {self._last_error}")

    def _pause(self, now: float, why: str) -> None:
        pause_s = min(max(self._asked_s, SHORTEST_PAUSE_S), self.rules.cool_down_s)
        self.probe = self.trial = None
        self._enter(BreakerState.PAUSED, now, f"{why}, for {pause_s:.3g} s")
        self._ends_at = now + pause_s

    def _enter(self, state: BreakerState, now: float, why: str, *, pardon: bool = False) -> None:
        if state not in _NEXT[self.state]:
            raise ValueError(f"a breaker that is {self.state} cannot become {state}")
        self.state, self.since = state, now
        if state in {BreakerState.OPEN, BreakerState.PAUSED}:
            self.why = why
        self._ends_at = now + self.rules.cool_down_s
        self._news.append(BreakerNews(state, why, bool(why), pardon))

    def _decides(self, source: object) -> bool:
        """Return whether a call's result decides: a retry's only without a new record."""
        return self._is_probe(source) or (
            source is not None and source is self.trial and self.probe is None
        )

    def _is_probe(self, source: object) -> bool:
        return source is not None and source is self.probe

    def _start_anew(self) -> None:
        """Discard the calls of an outage that is over."""
        self.probe = self.trial = None
        self._evidence.drop_old()
