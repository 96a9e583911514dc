"""The demo's checker: counts only produced records, handlers' calls and the contents of topics.

It ignores the framework's own counters, so that it can contradict them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from attrs import frozen

from window_consumer.demo.shop import ShopCall


@frozen
class DemoRun:
    """The checker's input."""

    produced: Mapping[int, tuple[int, int]]
    """Partition and offset of each order."""
    calls: Sequence[ShopCall]
    dead_letters: Sequence[tuple[int, int]]
    """Original partition and offset of each copy in the dead-letter topic."""
    committed: Mapping[int, int]
    ends: Mapping[int, int]
    seconds: float


@frozen
class DemoReport:
    """What the demo prints."""

    produced: int
    processed: int
    retried: int
    dead_lettered: int
    lost: int
    duplicates: int
    order_violations: int
    committed_equals_end: bool
    records_per_s: float
    seconds: float

    @property
    def good(self) -> bool:
        """Whether nothing was lost, no order was violated, and everything is committed."""
        return not self.lost and not self.order_violations and self.committed_equals_end


def judge(evidence: DemoRun) -> DemoReport:
    """Count the results of all orders."""
    succeeded = Counter(call.order for call in evidence.calls if call.succeeded)
    places = {place: order for order, place in evidence.produced.items()}
    copied = Counter(places[place] for place in evidence.dead_letters)
    finished = succeeded.keys() | copied.keys()
    twice = sum((succeeded + copied).values()) - len(finished)
    return DemoReport(
        produced=len(evidence.produced),
        processed=len(succeeded),
        retried=sum(call.attempt > 1 for call in evidence.calls),
        dead_lettered=len(copied),
        lost=len(evidence.produced.keys() - finished),
        duplicates=twice,
        order_violations=order_violations(evidence.calls),
        committed_equals_end=dict(evidence.committed) == dict(evidence.ends),
        records_per_s=round(len(finished) / evidence.seconds, 1) if evidence.seconds else 0.0,
        seconds=round(evidence.seconds, 3),
    )


def order_violations(calls: Iterable[ShopCall]) -> int:
    """Count calls that break the order of their key.

    Within one key of one partition, a call may start only after the previous one has ended, first
    calls are in offset order, and no other call lies between the attempts of a record.
    """
    lanes: dict[tuple[int, bytes], list[ShopCall]] = defaultdict(list)
    for call in calls:
        lanes[call.partition, call.key].append(call)
    violations = 0
    for lane in lanes.values():
        lane.sort(key=lambda call: call.started)
        for before, call in pairwise(lane):
            overlaps = call.started < before.ended
            goes_on = call.offset == before.offset and call.attempt == before.attempt + 1
            follows = call.offset > before.offset and call.attempt == 1
            violations += overlaps or not (goes_on or follows)
    return violations
