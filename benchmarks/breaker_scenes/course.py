"""What happened in a run of a scene, and the questions that figures ask about it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from attrs import define, field

INTERVAL_S = 0.5
"""Full speed is reached when such an interval has nine tenths of the expected records."""

_STEPS = 10
_SHOWN_CHANGES = 30


class EndedCall(NamedTuple):
    """The call for one record; a batch counts as one call per record."""

    began_s: float
    ended_s: float
    number: int
    key: int
    offset: int
    ok: bool


class Departure(NamedTuple):
    """A copy of a record in a retry level or in the dead letters."""

    at_s: float
    number: int
    topic: str


class Change(NamedTuple):
    """A state of the breaker that was seen."""

    at_s: float
    state: str
    why: str


@define(slots=False)
class Course:
    """What happened in one run. Use it only when the run is over."""

    written_s: dict[int, float]
    """When each record was to be written, by number."""
    bad: frozenset[int]
    calls: list[EndedCall] = field(factory=list)
    departures: list[Departure] = field(factory=list)
    changes: list[Change] = field(factory=list)
    ended_s: float = 0.0
    lost: int = 0
    """Committed records that were neither handled nor copied."""

    @cached_property
    def done_s(self) -> dict[int, float]:
        """When the first successful call of each healthy record ended."""
        found: dict[int, float] = {}
        for call in sorted(self.calls, key=lambda each: each.ended_s):
            if call.ok and call.number not in self.bad:
                found.setdefault(call.number, call.ended_s)
        return found

    @cached_property
    def times_s(self) -> list[float]:
        """The times at which healthy records were done, sorted."""
        return sorted(self.done_s.values())

    def done_between(self, begin_s: float, end_s: float) -> int:
        """Return how many healthy records were done in an interval."""
        return bisect_left(self.times_s, end_s) - bisect_left(self.times_s, begin_s)

    def moved(self, begin_s: float = 0.0, end_s: float = float("inf")) -> set[int]:
        """Return the healthy records that left in an interval."""
        return {
            each.number
            for each in self.departures
            if begin_s <= each.at_s < end_s and each.number not in self.bad
        }

    def most_moved_within(self, seconds: float) -> int:
        """Return the most healthy records that left within any stretch of time this long."""
        begins = {each.at_s for each in self.departures}
        return max((len(self.moved(begin, begin + seconds)) for begin in begins), default=0)

    def full_speed_after_s(self, begin_s: float, per_s: float) -> float:
        """Return the time from ``begin_s`` until a rate is reached, or else until the end."""
        enough = 0.9 * per_s * INTERVAL_S
        begin = begin_s
        while begin < self.ended_s:
            if self.done_between(begin, begin + INTERVAL_S) >= enough:
                return begin - begin_s
            begin += INTERVAL_S / _STEPS
        return self.ended_s - begin_s

    def gap_s(self, begin_s: float, end_s: float) -> float:
        """Return the longest time in an interval in which no healthy record was done."""
        within = (each for each in self.times_s if begin_s < each < end_s)
        return max(after - before for before, after in pairwise([begin_s, *within, end_s]))

    def lateness_s(self, other: Course, numbers: Iterable[int]) -> list[float]:
        """Return how much later than in another run records were done, sorted.

        A record that was done only there counts as done at the end of this run.
        """
        there = other.done_s
        return sorted(
            self.done_s.get(number, self.ended_s) - there[number]
            for number in numbers
            if number in there
        )

    def repeated(self) -> int:
        """Return how often a record was handled once more after it had been handled."""
        ok = sum(each.ok for each in self.calls)
        return ok - len({each.number for each in self.calls if each.ok})

    def order_violations(self) -> int:
        """Count the calls that began before an earlier record of their key was finished."""
        of_key: defaultdict[int, list[EndedCall]] = defaultdict(list)
        for call in self.calls:
            of_key[call.key].append(call)
        return sum(
            after.began_s < before.ended_s or after.offset < before.offset
            for calls in of_key.values()
            for before, after in pairwise(sorted(calls))
        )

    def summary(self) -> dict[str, Any]:
        """Return the figures that matter in any run."""
        return {
            "records": len(self.written_s),
            "bad": len(self.bad),
            "healthy_done": len(self.done_s),
            "calls": len(self.calls),
            "healthy_moved": len(self.moved()),
            "moved": len({each.number for each in self.departures}),
            "last_left_s": round(max((each.at_s for each in self.departures), default=0.0), 2),
            "ended_s": round(self.ended_s, 2),
            "states": [
                f"{each.at_s:.1f} s {each.state}: {each.why}"
                for each in self.changes[:_SHOWN_CHANGES]
            ],
        }


def percentile(values: list[float], share: float) -> float:
    """Return a percentile of sorted values; 0 for none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
