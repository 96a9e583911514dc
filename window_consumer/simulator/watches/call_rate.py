"""Limits that change at random, and a watch on how fast calls start."""

from __future__ import annotations

from bisect import insort
from random import Random

from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import (
    AdaptiveConcurrency,
    LimitNews,
    LimitRules,
)
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import Message
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import Member

CHANGES = 0.1
"""The share of checks at which such a limit changes."""

_TOLERANCE = 1e-6


class RandomConcurrency(AdaptiveConcurrency):
    """A limiter that changes at random: the bounds must hold for every limit."""

    def __init__(self, rules: LimitRules, upper: int, rng: Random):
        super().__init__(rules, upper)
        self._rng = rng
        self.highest = self.limit
        """The highest limit since the last check."""

    def adjust(self, now: float, out: int) -> LimitNews | None:  # noqa: ARG002 - it is random
        """Change the limit, or leave it as it is."""
        if self._rng.random() < CHANGES:
            self.limit = self.base = self._rng.randint(self._lower, self._upper)
            self.highest = max(self.highest, self.limit)
        return None


class CallRateWatch:
    """Records when slots take records, and judges whether they do so too fast."""

    def __init__(self, history: SimulationHistory):
        self._history = history
        self._taken: dict[tuple[Member, object], list[float]] = {}

    def taken(self, member: Member, slice_: Slice, message: Message) -> None:
        """Record that a slot has taken a record: the first one with its slice."""
        rate, fair = self._history.plan.engine.rate, self._history.plan.engine.fair
        if rate is None:
            return
        of: object = None
        partition = slice_.partition
        source = partition.retry_level.source
        if rate.per == "key":
            of = message.key()
        elif rate.per == "partition":
            of = (source, partition.name.partition)
        elif rate.per == "class" and fair is not None:
            of = fair.name_of(source, message)
        is_first = message is slice_.messages[0] and not slice_.settled
        at = slice_.started if is_first else self._history.now()
        insort(self._taken.setdefault((member, of), []), at)

    def judge(self) -> None:
        """Record each span of time in which more were taken than the rate and its burst allow."""
        rate = self._history.plan.engine.rate
        if rate is None:
            return
        for (member, of), times in self._taken.items():
            level, before = 0.0, times[0]
            for at in times:
                level = max(0.0, level - rate.per_s * (at - before)) + 1
                before = at
                if level > rate.burst + _TOLERANCE:
                    self._history.violate(
                        f"{member} starts calls of {of} too fast: {level:.3g} at {at:.4f}, its"
                        f" burst is {rate.burst}"
                    )
                    break
