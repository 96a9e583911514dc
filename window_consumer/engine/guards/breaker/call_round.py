"""A round of calls: the first ones that start after it began, and how they ended.

Failures often end sooner than successes, and a call that began before the round says nothing about
the time since. So a round consists of the first calls that *start* in it, and is judged when all of
them have ended. What the breaker searches for in a state, it finds by rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from math import inf
from typing import Protocol

from attrs import define, field

from window_consumer.engine.guards.breaker_state import BreakerFinding, Outlook

ENOUGH_LANES = 3
"""In how many lanes calls must succeed, if there are that many: a service that answers once and
fails again is still down."""


@define
class RoundTally:
    """How the calls of one kind ended; a lane counts once as failed and once as returned."""

    started: int = 0
    ok: int = 0
    failed: int = 0
    later: int = 0
    ok_lanes: set[Hashable] = field(factory=set)
    failed_lanes: set[Hashable] = field(factory=set)
    without_lane: int = 0
    """Records without a lane that returned; each counts as its own lane."""

    @property
    def lanes(self) -> int:
        """In how many lanes calls returned."""
        return len(self.ok_lanes) + self.without_lane

    def is_good(self, failures: float) -> bool:
        """Return whether calls succeed: in enough lanes, with few failures."""
        there_are = self.lanes + len(self.failed_lanes - self.ok_lanes)
        enough = self.lanes >= min(ENOUGH_LANES, there_are) > 0
        return enough and self.failed <= failures * (self.ok + self.failed)


class CallRound:
    """Counts the calls of one round, or of several. Owner: poll thread."""

    def __init__(self, target: float, now: float, *, of_each: float = inf):
        self.target = target
        """How many records must be called."""
        self._of_each = of_each
        """The most calls of one kind that count."""
        self.since = now
        self.started = 0
        self.crowd = 0
        """The most calls that ran when one of the round's calls began, including that one."""
        self.tallies: dict[Hashable, RoundTally] = defaultdict(RoundTally)
        """The calls by kind: where in the windows their records come from."""
        self._running: dict[object, RoundTally] = {}

    def start(self, source: object, records: int, kind: Hashable, crowd: int) -> None:
        """Record that a slice goes out, one of ``crowd``; slices beyond the target do not count."""
        tally = self.tallies[kind]
        if self.started < self.target and tally.started < self._of_each:
            self.started += records
            tally.started += records
            self.crowd = max(self.crowd, crowd)
            self._running[source] = tally

    def returned(self, source: object, lanes: Iterable[Hashable]) -> None:
        """Record calls that returned, by their lanes."""
        if (tally := self._running.get(source)) is None:
            return
        for lane in lanes:
            tally.ok += 1
            if lane is None:
                tally.without_lane += 1
            else:
                tally.ok_lanes.add(lane)

    def failed(self, source: object, lane: Hashable) -> None:
        """Record a call that failed; further failures of its lane add no evidence."""
        if (tally := self._running.get(source)) is None:
            return
        if lane is None:
            tally.failed += 1
        elif lane not in tally.failed_lanes:
            tally.failed_lanes.add(lane)
            tally.failed += 1

    def asked_later(self, source: object) -> None:
        """Record a call that asked to be called later."""
        if (tally := self._running.get(source)) is not None:
            tally.later += 1

    def over(self, source: object) -> None:
        """Record that a slice has ended."""
        self._running.pop(source, None)

    def is_over(self, now: float, longest_s: float, *, starved: bool) -> bool:
        """Return whether the round can be judged.

        ``starved`` says that nothing more can start. Calls that run longer than ``longest_s`` are
        not waited for.
        """
        if now - self.since >= longest_s:
            return True
        return not self._running and (self.started >= self.target or starved)

    def has_kinds(self, kinds: int) -> bool:
        """Return whether enough calls of this many kinds have started."""
        return sum(each.started >= ENOUGH_LANES for each in self.tallies.values()) >= kinds

    @property
    def ok(self) -> int:
        """Calls that returned."""
        return sum(each.ok for each in self.tallies.values())

    @property
    def ok_lanes(self) -> int:
        """In how many lanes calls returned; a lane counts once for each kind of call."""
        return sum(each.lanes for each in self.tallies.values())

    @property
    def bad(self) -> int:
        """Calls that failed, and calls that have not returned."""
        return sum(each.failed for each in self.tallies.values()) + len(self._running)

    @property
    def later(self) -> int:
        """Calls that asked to be called later."""
        return sum(each.later for each in self.tallies.values())

    def some_succeed(self, failures: float) -> bool:
        """Return whether the calls of some kind succeed."""
        return any(each.is_good(failures) for each in self.tallies.values())

    def only_some_succeed(self, failures: float) -> bool:
        """Return whether the calls of some kind succeed while all calls of another fail."""
        tallies = self.tallies.values()
        return self.some_succeed(failures) and any(
            each.failed >= ENOUGH_LANES and not each.ok for each in tallies
        )

    def passes(self, failures: float) -> bool:
        """Return whether at most the allowed share failed, and some call succeeded."""
        return self.ok > 0 and self.bad <= failures * (self.ok + self.bad)


class StateSearch(Protocol):
    """What the breaker wants to know while it is in a state. Owner: poll thread."""

    @property
    def rounds(self) -> Sequence[CallRound]:
        """The rounds to which calls belong now."""

    @property
    def limit(self) -> int | None:
        """How many calls may run one by one; None for as many as there are slots."""

    def judge(self, now: float, outlook: Outlook) -> BreakerFinding | None:
        """Return what has been found, if anything."""

    def next_due(self, now: float) -> float:
        """Return when it has to be judged again even if nothing happens."""
