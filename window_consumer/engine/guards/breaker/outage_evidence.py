"""The evidence of the circuit breaker: how recent new records ended.

A lane that fails repeatedly counts once, until one of its records returns or the breaker opens or
closes: the records of a hot key that always fail say no more than the first of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from math import ceil

from attrs import define

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
        self._most = ceil(min_calls / failures)
        """How many of the last calls are remembered: enough for ``min_calls`` failures."""
        self._mask = (1 << self._most) - 1
        self._known = 0
        self._failed = 0
        """The failed ones, one bit each; the lowest bit is the latest call."""
        self._later = 0
        """Those that asked to be called later, one bit each."""
        self._ends: deque[tuple[float, int]] = deque()
        """When the remembered calls ended, and how many."""
        self._dropped = 0
        """How many of the first of these are no longer remembered."""
        self._last_at = float("-inf")
        """When the latest call ended: after ``window_s`` without one, the evidence is discarded."""
        self._buckets: deque[RecordTally] = deque()
        self._window = RecordTally()
        """The sum of the buckets."""
        self.lanes = FailedLanes()
        self.crowds: deque[int] = deque(maxlen=min_calls)
        """While all slots may run: how many calls ran when the last new records failed."""

    def failed(self, now: float, lane: Hashable) -> bool:
        """Record a new record that failed; return False if its lane has been counted."""
        if self.lanes.is_repeat(lane, now):
            return False
        self.record(1, now, failed=1)
        return True

    def record(self, calls: int, now: float, *, failed: int = 0, later: int = 0) -> None:
        """Record new records as the latest ones: some that returned, or one that did not."""
        buckets, window = self._buckets, self._window
        bucket = buckets[-1] if buckets and now < buckets[-1].until else self._new_bucket(now)
        bucket.calls += calls
        window.calls += calls
        if failed or later:
            bucket.failed += failed
            bucket.later += later
            window.failed += failed
            window.later += later
        if now - self._last_at > self._window_s:
            self._discard_known()
        self._last_at = now
        most = self._most
        calls = min(calls, most)
        ends = self._ends
        ends.append((now, calls))
        self._known += calls
        if self._known > most:
            surplus = self._dropped + self._known - most
            while surplus >= ends[0][1]:
                surplus -= ends.popleft()[1]
            self._dropped, self._known = surplus, most
        if failed or self._failed:
            self._failed = (self._failed << calls | failed) & self._mask
        if later or self._later:
            self._later = (self._later << calls | later) & self._mask

    def drop_old(self) -> None:
        """Discard the evidence of an outage that is over."""
        self._discard_known()
        self._window = RecordTally()
        self._buckets.clear()
        self.lanes.clear()

    def _discard_known(self) -> None:
        self._known = self._failed = self._later = self._dropped = 0
        self._ends.clear()

    @property
    def since(self) -> float:
        """When the first of the last ones ended."""
        return self._ends[0][0]

    @property
    def last(self) -> RecordTally:
        """The last new records."""
        return RecordTally(0.0, self._known, self._failed.bit_count(), self._later.bit_count())

    def window(self, now: float) -> RecordTally:
        """Return the new records within the window."""
        self._expire(now)
        return self._window

    @property
    def is_bad(self) -> bool:
        """At least ``min_calls`` of the last ones did not return, and more than are allowed."""
        bad = (self._failed | self._later).bit_count()
        return bad >= self._min_calls and self.is_bad_beside(0)

    def is_bad_beside(self, undecided: int) -> bool:
        """Return whether it stays bad even if this many running calls return."""
        bad, known = (self._failed | self._later).bit_count(), self._known + undecided
        return bad >= self._min_calls and (bad > self._failures * known or bad == known)

    def _new_bucket(self, now: float) -> RecordTally:
        """Return a new bucket for calls that end from now on."""
        self._expire(now)
        bucket = RecordTally(now + self._window_s / _BUCKETS)
        self._buckets.append(bucket)
        return bucket

    def _expire(self, now: float) -> None:
        while self._buckets and self._buckets[0].until <= now - self._window_s:
            old = self._buckets.popleft()
            self._window.calls -= old.calls
            self._window.failed -= old.failed
            self._window.later -= old.later


_FORGET_S = 60.0
"""After one to two of these intervals without a failure, a lane's next failure counts again."""


class FailedLanes:
    """The lanes whose failures were counted. Owner: poll thread."""

    def __init__(self) -> None:
        self._failed: set[Hashable] = set()
        self._before: set[Hashable] = set()
        self._since = 0.0

    def returned(self, lanes: Iterable[Hashable]) -> None:
        """Record that records of these lanes returned: their next failure counts."""
        if self._failed:
            self._failed.difference_update(lanes)
        if self._before:
            self._before.difference_update(lanes)

    def is_repeat(self, lane: Hashable, now: float) -> bool:
        """Record the failure of a new record; return whether its lane has been counted."""
        if lane is None:
            return False
        if now - self._since >= _FORGET_S:
            self._before = self._failed if now - self._since < 2 * _FORGET_S else set()
            self._failed, self._since = set(), now
        repeats = lane in self._failed or lane in self._before
        self._failed.add(lane)
        return repeats

    def clear(self) -> None:
        """Let the next failure of every lane count again."""
        self._failed.clear()
        self._before.clear()
