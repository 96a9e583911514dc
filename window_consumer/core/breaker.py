"""The circuit breaker: keeps a general outage from emptying a topic into the dead letters.

========= ============================ ====================================================
state     meaning                      left
========= ============================ ====================================================
closed    everything goes its way      when most of the last ``min_calls`` calls failed
holding   calls go on, but records     to closed when enough of the last calls returned; to open
          whose attempts are spent     when most calls within ``window`` failed, or after HOLD_S:
          stay where they are          at a high rate the successes before an outage outweigh it.
                                       But to closed then where most of the last records returned
                                       when they were called first: what is left is what is wrong
open      nothing starts, nothing      when ``cool_down`` is over
          leaves
half-open one call at a time           to closed when one returns, or when there is nothing left
                                       to call; to open when PROBES failed, or one hangs
========= ============================ ====================================================

Only what another call could mend counts as failed; a call that says nothing about the world around
the handler (Fatal, Skip) does not count at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum

from attrs import define, frozen

HOLD_S = 0.5
"""How long most calls fail before it opens at a rate at which ``window`` holds too many of those
that went well: longer than a connection takes to come back, and than the first local retry."""

FORGIVEN_S = 0.1
"""Records whose attempts were spent while this was held at least so long are called once more:
what is shorter comes from failed records that are called again one after another."""

SETTLE_S = 0.02
"""A spent record leaves this much later: by then it shows whether it was the first of many."""

AT_ONCE = 5
"""... unless fewer than this many have left in as long a time: too few for an outage."""

PROBES = 3
"""A single record that always fails must not keep it open."""

_BUCKETS = 30
_NEVER = float("-inf")


@frozen
class BreakerRules:
    """The ``breaker`` section of a worker's configuration; seconds."""

    failures: float = 0.5
    """Above this share of failed calls it holds and opens; at 1.0 when all of them failed."""
    window_s: float = 30.0
    min_calls: int = 20
    cool_down_s: float = 30.0
    enabled: bool = True


class BreakerState(StrEnum):
    """What the breaker lets through."""

    CLOSED = "closed"
    HOLDING = "holding"
    OPEN = "open"
    HALF_OPEN = "half-open"


_NEXT: Mapping[BreakerState, frozenset[BreakerState]] = {
    BreakerState.CLOSED: frozenset({BreakerState.HOLDING}),
    BreakerState.HOLDING: frozenset({BreakerState.CLOSED, BreakerState.OPEN}),
    BreakerState.OPEN: frozenset({BreakerState.HALF_OPEN}),
    BreakerState.HALF_OPEN: frozenset({BreakerState.CLOSED, BreakerState.OPEN}),
}


@frozen
class BreakerNews:
    """The breaker has come into another state."""

    state: BreakerState
    why: str
    """In words."""
    worth_a_line: bool = True
    """Holding comes and goes with every handful of bad records."""
    pardon: bool = False
    """Records whose attempts were spent meanwhile are to be called once more."""


@define
class _Bucket:
    """The calls of a thirtieth of the window."""

    until: float
    done: int = 0
    failed: int = 0


class Breaker:
    """Hears of all calls of one worker and says what may go on. Owner: poll thread."""

    def __init__(self, rules: BreakerRules):
        self.rules = rules
        self.state = BreakerState.CLOSED
        self.probe: object | None = None
        """The call that is made to find out, while it is half-open."""
        self.probes = 0
        """Calls that were made to find out so far."""
        self.since = _NEVER
        """When it came into this state; the first look stands for the beginning."""
        self._recent = 0
        """The last calls, one bit each, the latest one lowest: 1 for one that failed."""
        self._mask = (1 << rules.min_calls) - 1
        self._known = 0
        """How many bits of those count."""
        self._first = 0
        """The last calls that were the first ones of their records, as ``_recent``."""
        self._first_known = 0
        self._buckets: deque[_Bucket] = deque()
        self._done = 0
        self._failed = 0
        self._probes_failed = 0
        self._decides_at = 0.0
        """When it is half-open no more, whatever has become of the probe."""
        self._at_once = 0
        self._at_once_until = 0.0
        self._last_error = ""
        self._news: list[BreakerNews] = []

    # ---- what it hears

    def returned(
        self, calls: int, now: float, source: object = None, *, is_first: bool = True
    ) -> None:
        """Note calls of a slice that returned; ``source`` tells a probe from other calls.

        ``is_first`` tells the first calls of records from those that are made again.
        """
        if not self.rules.enabled or not calls:
            return
        if self.lets_start:
            self._bucket(now).done += calls
            self._done += calls
            self._remember(calls, failed=False, is_first=is_first)
            if self.state is BreakerState.HOLDING and not self._recently_bad:
                pardon = now - self.since >= FORGIVEN_S
                self._enter(BreakerState.CLOSED, now, "", pardon=pardon)
        elif source is self.probe and self.state is BreakerState.HALF_OPEN:
            self._start_anew()
            self._enter(BreakerState.CLOSED, now, "a call has returned", pardon=True)

    def failed(
        self, now: float, error: str, source: object = None, *, is_first: bool = True
    ) -> None:
        """Note a call that failed with what another call could mend; ``error`` in words."""
        if not self.rules.enabled:
            return
        if self.lets_start:
            self._bucket(now).failed += 1
            self._failed += 1
            self._remember(1, failed=True, is_first=is_first)
            self._last_error = error
            self._judge(now)
        elif source is self.probe and self.state is BreakerState.HALF_OPEN:
            self._last_error = error
            self._probe_failed(now)

    def look(self, now: float) -> list[BreakerNews]:
        """Let time pass; return the states it came into since the last look."""
        if self.since == _NEVER:
            self.since = now
        if self.state is BreakerState.HOLDING:
            if now - self.since >= HOLD_S:
                self._end_holding(now)
        elif self.state is BreakerState.OPEN:
            if now - self.since >= self.rules.cool_down_s:
                self._probes_failed = 0
                self._enter(BreakerState.HALF_OPEN, now, "the cool-down is over", pardon=True)
        elif self.state is BreakerState.HALF_OPEN and now >= self._decides_at:
            if self.probe is None:
                self._start_anew()
                self._enter(BreakerState.CLOSED, now, "nothing is left to call", pardon=True)
            else:
                self.probe = None
                why = "the call that was to find out does not return"
                self._enter(BreakerState.OPEN, now, why)
        news, self._news = self._news, []
        return news

    def probing(self, source: object, now: float) -> None:
        """Note which call is made to find out; it has as long as a cool-down takes."""
        self.probe = source
        self.probes += 1
        self._decides_at = now + self.rules.cool_down_s

    def probe_is_back(self, source: object) -> None:
        """Note that a probe is over; where it said nothing, another one follows."""
        if source is self.probe:
            self.probe = None

    # ---- what it says

    @property
    def lets_start(self) -> bool:
        """Calls may start as they come."""
        state = self.state
        return state is BreakerState.CLOSED or state is BreakerState.HOLDING

    @property
    def wants_probe(self) -> bool:
        """One call may start."""
        return self.state is BreakerState.HALF_OPEN and self.probe is None

    def lets_leave(self, spent_at: float, now: float, *, in_a_hurry: bool = False) -> bool:
        """Tell whether a record whose attempts were spent at a time may leave now."""
        if self.state is not BreakerState.CLOSED:
            return False
        if not self.rules.enabled or in_a_hurry or spent_at <= now - SETTLE_S:
            return True
        if now >= self._at_once_until:
            self._at_once_until = now + SETTLE_S
            self._at_once = 0
        self._at_once += 1
        return self._at_once <= AT_ONCE

    def settled_at(self, spent_at: float) -> float:
        """Return when a record may leave at the latest, as things are."""
        return spent_at + SETTLE_S if self.state is BreakerState.CLOSED else float("inf")

    def next_look(self) -> float:
        """Return when it has to be looked at again although nothing happens."""
        if self.state is BreakerState.HOLDING:
            return self.since + HOLD_S
        if self.state is BreakerState.OPEN:
            return self.since + self.rules.cool_down_s
        return float("inf")

    def calls_within_window(self, now: float) -> tuple[int, int]:
        """Return how many calls failed within the window, and how many there were."""
        self._expire(now)
        return self._failed, self._done + self._failed

    # ---- its rules

    def _judge(self, now: float) -> None:
        failed, calls = self.calls_within_window(now)
        if calls < self.rules.min_calls or not self._recently_bad:
            return
        if self.state is BreakerState.CLOSED:
            self._enter(BreakerState.HOLDING, now, "")
        if self._above(failed, calls):
            share = f"{failed} of {calls} calls failed within {self.rules.window_s:g} s"
            self._enter(BreakerState.OPEN, now, f"{share}, the last one with {self._last_error}")

    def _end_holding(self, now: float) -> None:
        known = self._first_known
        if known < self.rules.min_calls or self._above(self._first.bit_count(), known):
            self._enter(BreakerState.OPEN, now, self._recent_share())
            return
        # Others went well meanwhile: the last calls were those that records which always fail had
        # left. Open, it would call nothing else, and wait for one of them to return.
        self._recent = self._known = 0
        self._enter(BreakerState.CLOSED, now, "")

    @property
    def _recently_bad(self) -> bool:
        known = self._known
        return known >= self.rules.min_calls and self._above(self._recent.bit_count(), known)

    def _above(self, failed: int, calls: int) -> bool:
        return failed > self.rules.failures * calls or failed == calls

    def _recent_share(self) -> str:
        share = f"{self._recent.bit_count()} of the last {self._known} calls failed"
        return f"{share}, the last one with {self._last_error}"

    def _probe_failed(self, now: float) -> None:
        self.probe = None
        self._probes_failed += 1
        if self._probes_failed >= PROBES:
            why = f"{PROBES} calls one after another failed, the last one with {self._last_error}"
            self._enter(BreakerState.OPEN, now, why)

    def _enter(self, state: BreakerState, now: float, why: str, *, pardon: bool = False) -> None:
        if state not in _NEXT[self.state]:
            raise ValueError(f"a breaker that is {self.state} cannot become {state}")
        self.state, self.since = state, now
        self._decides_at = now + self.rules.cool_down_s
        self._news.append(BreakerNews(state, why, bool(why), pardon))

    # ---- what it remembers

    def _remember(self, calls: int, *, failed: bool, is_first: bool) -> None:
        """Note calls that ended alike as the latest ones."""
        calls = min(calls, self.rules.min_calls)
        bits = (1 << calls) - 1 if failed else 0
        self._recent = (self._recent << calls | bits) & self._mask
        self._known = min(self._known + calls, self.rules.min_calls)
        if is_first:
            self._first = (self._first << calls | bits) & self._mask
            self._first_known = min(self._first_known + calls, self.rules.min_calls)

    def _bucket(self, now: float) -> _Bucket:
        """Return the bucket of calls that end now."""
        buckets = self._buckets
        if not buckets or now >= buckets[-1].until:
            self._expire(now)
            buckets.append(_Bucket(now + self.rules.window_s / _BUCKETS))
        return buckets[-1]

    def _expire(self, now: float) -> None:
        while self._buckets and self._buckets[0].until <= now - self.rules.window_s:
            old = self._buckets.popleft()
            self._done -= old.done
            self._failed -= old.failed

    def _start_anew(self) -> None:
        """Forget the calls of an outage that is over."""
        self.probe = None
        self._recent = self._known = self._done = self._failed = 0
        self._first = self._first_known = 0
        self._buckets.clear()
