"""A run at full load in which every call fails for a while, to measure the circuit breaker."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from attrs import define, field

from benchmarks import framework, usage
from benchmarks.results import Run
from benchmarks.workloads import Workload
from window_consumer import Record
from window_consumer.model.errors import RunError

RETRY: dict[str, Any] = {"attempts": 1, "when_spent": "dead_letter"}
"""Without a second call, a failed record is spent at once: the hardest case."""

BEGINS_S = 5.0
LASTS_S = 20.0

_BEFORE_S = 2.0
"""The rate before the outage is measured over this time."""

_STRETCH_S = 0.25
"""Full speed is reached when such an interval has nine tenths of that rate."""


@define
class Bank:
    """The service that the handler calls: it takes a moment, and is down for a while."""

    wait_s: float
    first: float = 0.0
    """When the first call came; 0 before."""
    paid: array[float] = field(factory=lambda: array("d"))
    """When calls returned."""
    places: list[tuple[int, int]] = field(factory=list)
    """The records of the calls that returned."""
    refused: array[float] = field(factory=lambda: array("d"))
    """When calls failed."""

    def pay(self, record: Record) -> None:
        """Return after a moment, or raise at once during the outage."""
        now = time.perf_counter()
        if not self.first:
            self.first = now
        if self.down_at <= now < self.up_at:
            self.refused.append(now)
            raise ConnectionError("the bank is down")
        time.sleep(self.wait_s)
        self.paid.append(time.perf_counter())
        self.places.append((record.partition, record.offset))

    @property
    def down_at(self) -> float:
        """When the outage begins."""
        return self.first + BEGINS_S

    @property
    def up_at(self) -> float:
        """When it ends."""
        return self.down_at + LASTS_S

    def rate_before(self) -> float:
        """Return how many calls returned per second before the outage."""
        return self._returned(self.down_at - _BEFORE_S, self.down_at) / _BEFORE_S

    def full_speed_after_s(self) -> float:
        """Return how long it took from the first call after the outage to full speed."""
        found = sorted(self.paid)
        probe = found[bisect_left(found, self.up_at)] - self.wait_s
        enough = 0.9 * self.rate_before() * _STRETCH_S
        begin = probe
        while begin < found[-1]:
            if self._returned(begin, begin + _STRETCH_S) >= enough:
                return begin - probe
            begin += _STRETCH_S / 5
        raise RunError("after the outage full speed was not reached again")

    def stood_s(self) -> float:
        """Return the longest time without a call."""
        return max(
            after - before for before, after in pairwise(sorted((*self.paid, *self.refused)))
        )

    def _returned(self, begin: float, end: float) -> int:
        found = sorted(self.paid)
        return bisect_left(found, end) - bisect_left(found, begin)


def run(bootstrap: str, topic: str, group: str, workload: Workload, counts: Sequence[int]) -> Run:
    """Handle a topic's records while the handler fails for ``LASTS_S`` seconds in between."""
    bank = Bank(workload.wait_s)
    app, plan = framework.planned(bootstrap, topic, group, workload, bank.pay, {"retry": RETRY})
    used = usage.cpu_s()
    running = app.start_plan(plan, start_timeout=framework.START_S)
    framework.watch(running, sum(counts), lambda each: each.processed + each.dead_lettered)
    counters = running.counters[framework.WORKER]
    framework.end(running)
    if not counters.breaker_opened:
        raise RunError("the breaker has not opened")
    once = set(bank.places)
    return Run(
        bank.rate_before(),
        usage.cpu_s() - used,
        usage.max_rss_mb(),
        lost=sum(counts) - len(once) - counters.dead_lettered,
        duplicates=len(bank.places) - len(once),
        notes={
            "moved": float(counters.moved + counters.dead_lettered),
            "full_speed_after_s": bank.full_speed_after_s(),
            "failed_calls": float(len(bank.refused)),
            "stood_s": bank.stood_s(),
        },
    )
