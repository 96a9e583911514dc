"""The evidence of the circuit breaker: how recent new records ended.

A lane that fails repeatedly counts once. The records of a hot key that always fail leave one by
one. When everything else is done only they are left, and would look like an outage. So if many
lanes succeed, a failure right after another of its lane is no evidence. If few lanes are known,
each failure counts, because an outage would look the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import sqrt
from typing import Final

from attrs import define

from window_consumer.engine.scheduling.lanes import Lane

BEYOND_CHANCE = 0.45
"""How far above ``failures`` the share of ``min_calls`` must be, as a part of the distance to 1: 15
of 20 for a half. If 30 % of all records are bad, 11 bad ones are among 20 once in 60 times, 15 once
in 23,000. With more calls a smaller distance suffices: it shrinks with the root of their number."""

_BUCKETS = 30


@define
class RecordTally:
    """How some new records ended."""

    until: float = 0.0
    calls: int = 0
    failed: int = 0
    later: int = 0
    """Records that asked to be called later."""

    @property
    def bad(self) -> int:
        """Records that did not return."""
        return self.failed + self.later


class OutageEvidence:
    """How the new records of one worker ended: the last ones, and those within the window.

    Owner: poll thread.
    """

    def __init__(self, failures: float, window_s: float, min_calls: int):
        self._failures = failures
        self._window_s = window_s
        self._min_calls = min_calls
        self._mask = (1 << min_calls) - 1
        self._known = 0
        """How many of the last ``min_calls`` there have been."""
        self._failed = 0
        """Those of them that failed, one bit each, the latest one lowest."""
        self._later = 0
        """Those of them that asked to be called later, one bit each."""
        self._last_at = float("-inf")
        """When the latest one ended: after ``window_s`` without any they are discarded."""
        self._buckets: deque[RecordTally] = deque()
        self._window = RecordTally()
        """The sum of the buckets."""
        self.since = RecordTally()
        """All new records since ``begin``."""

    def record(self, calls: int, now: float, *, failed: int = 0, later: int = 0) -> None:
        """Record new records as the latest ones: some that returned, or one that did not."""
        for tally in (self._bucket(now), self._window, self.since):
            tally.calls += calls
            tally.failed += failed
            tally.later += later
        if now - self._last_at > self._window_s:
            self._known = self._failed = self._later = 0
        self._last_at = now
        calls = min(calls, self._min_calls)
        self._failed = (self._failed << calls | failed) & self._mask
        self._later = (self._later << calls | later) & self._mask
        self._known = min(self._known + calls, self._min_calls)

    def begin(self) -> None:
        """Restart the count of ``since``."""
        self.since = RecordTally()

    def drop_old(self) -> None:
        """Discard the evidence of an outage that is over."""
        self._known = self._failed = self._later = 0
        self._window = RecordTally()
        self._buckets.clear()

    @property
    def last(self) -> RecordTally:
        """The last ``min_calls`` new records."""
        return RecordTally(0.0, self._known, self._failed.bit_count(), self._later.bit_count())

    def window(self, now: float) -> RecordTally:
        """Return the new records within the window."""
        self._expire(now)
        return self._window

    @property
    def is_bad(self) -> bool:
        """More of the last ones failed, or asked to be called later, than allowed."""
        bad, known = (self._failed | self._later).bit_count(), self._known
        if known < self._min_calls:
            return False
        return bad > self._failures * known or bad == known

    @property
    def most_asked(self) -> bool:
        """Most of the last ones that did not return asked to be called later."""
        return self._later.bit_count() > self._failed.bit_count()

    def is_beyond_chance(self, bad: int, calls: int) -> bool:
        """Return whether ``bad`` of ``calls`` exceeds the allowed share by more than chance."""
        if calls < self._min_calls:
            return False
        share = self._failures
        share += BEYOND_CHANCE * (1 - share) * sqrt(self._min_calls / calls)
        return bad > share * calls or bad == calls

    def _bucket(self, now: float) -> RecordTally:
        """Return the bucket of calls that end now."""
        buckets = self._buckets
        if not buckets or now >= buckets[-1].until:
            self._expire(now)
            buckets.append(RecordTally(now + self._window_s / _BUCKETS))
        return buckets[-1]

    def _expire(self, now: float) -> None:
        while self._buckets and self._buckets[0].until <= now - self._window_s:
            old = self._buckets.popleft()
            self._window.calls -= old.calls
            self._window.failed -= old.failed
            self._window.later -= old.later


MANY: Final = 40
"""How many lanes must have returned recently before a repeating lane is no evidence: an outage
shows in the first failures of others, of which the breaker needs 20 by default."""

LATELY_S: Final = 300.0
"""How long a returned lane counts: a backlog of hot keys takes longer than the breaker's window."""

_STREAK_S: Final = 60.0
"""After this long without a failure a lane's next failure counts again."""

_MOST: Final = 10_000
"""The most lanes that are kept; above this all are discarded, and count again."""


class BadLanes:
    """Detects lanes that fail repeatedly. Owner: poll thread. Cost: two checks a good slice."""

    def __init__(self) -> None:
        self._failed_at: dict[Lane, float] = {}
        self._good: set[Lane] = set()
        self._good_before: set[Lane] = set()
        self._begun = float("-inf")

    def returned(self, lanes: Iterable[Lane | None], now: float) -> None:
        """Record that records of these lanes have returned."""
        if now - self._begun >= LATELY_S:
            self._good_before = self._good if now - self._begun < 2 * LATELY_S else set()
            self._good, self._begun = set(), now
        if self._failed_at:
            for lane in lanes:
                self._failed_at.pop(lane, None)
        if len(self._good) < MANY:
            self._good.update(lane for lane in lanes if lane is not None)

    def is_repeat(self, lane: Lane | None, now: float) -> bool:
        """Record the failure of a new record; return whether it only repeats one of its lane."""
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
