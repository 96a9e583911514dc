"""A worker that finds its own concurrency, before a downstream that slows down when crowded."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from attrs import define, field, frozen

from benchmarks import framework, usage
from benchmarks.results import Run
from benchmarks.workloads import Workload

STANDS = 50
"""Up to this many concurrent calls take as long as one."""

FIXED = (20, 30, 40, 45, 50, 55, 60, 80)
"""The fixed concurrencies to try."""

FIXED_S = 4.0
AUTO_S = 20.0
"""How long each fixed concurrency (FIXED_S) and auto (AUTO_S) runs; auto includes its search."""

_BEGINS_S = 1.0
"""How long after its first call a fixed concurrency is measured, to show its best."""


@define
class Downstream:
    """Beyond STANDS concurrent calls, each takes longer with the square of their number.

    So throughput does not just stop growing: it falls.
    """

    wait_s: float
    began: float = 0.0
    running: dict[int, None] = field(factory=dict)
    ended: list[float] = field(factory=list)

    def call(self, _record: object) -> None:
        """Take as long as the present number of calls takes."""
        ident = threading.get_ident()
        self.running[ident] = None
        if not self.began:
            self.began = time.perf_counter()
        time.sleep(self.wait_s * max(1.0, len(self.running) / STANDS) ** 2)
        del self.running[ident]
        self.ended.append(time.perf_counter())

    def rate(self, begin_s: float, end_s: float) -> float:
        """Return the calls that ended per second, between two times after the first call."""
        begin, end = self.began + begin_s, self.began + end_s
        return sum(begin <= each < end for each in self.ended) / (end_s - begin_s)


@frozen
class Concurrency:
    """The result of one concurrency."""

    records_per_s: float
    settled: int


def run(
    bootstrap: str,
    topic: str,
    group: str,
    workload: Workload,
    counts: Sequence[int],  # noqa: ARG001 - what every part gets
    *,
    wait_s: float,
) -> Run:
    """Search the best fixed concurrency for calls of ``wait_s``, and let auto find one."""

    def one(concurrency: Any, lasts_s: float, begins_s: float) -> Concurrency:
        downstream = Downstream(wait_s)
        keys = {"concurrency": concurrency, "stop_timeout": "5s"}
        name = f"{group}-{concurrency}"
        app, plan = framework.planned(bootstrap, topic, name, workload, downstream.call, keys)
        running = app.start_plan(plan, start_timeout=framework.START_S)
        while not downstream.began and not running.wait(0.01):
            pass
        running.wait(lasts_s)
        limit = running.snapshots()[framework.WORKER].limit
        framework.end(running)
        rate = downstream.rate(begins_s, lasts_s)
        return Concurrency(rate, limit.settled if limit else concurrency)

    used = usage.cpu_s()
    found = [one(each, FIXED_S, _BEGINS_S) for each in FIXED]
    best = max(found, key=lambda each: each.records_per_s)
    used_by_search, auto = usage.cpu_s(), one("auto", AUTO_S, 0.0)
    used = usage.cpu_s() - used_by_search
    return Run(
        auto.records_per_s,
        used,
        usage.max_rss_mb(),
        ratios={"best-fixed": auto.records_per_s / best.records_per_s},
        notes={
            "best_fixed": float(best.settled),
            "best_fixed_per_s": best.records_per_s,
            "settled": float(auto.settled),
        },
    )


def joined(runs: Sequence[tuple[float, Run]]) -> Run:
    """Join the runs of each wait into one: the worst ratio, and all figures as notes."""
    notes = {
        f"{name}_{wait_s * 1000:g}ms": value
        for wait_s, run in runs
        for name, value in [("per_s", run.records_per_s), *run.notes.items(), *run.ratios.items()]
    }
    worst = min(runs, key=lambda each: each[1].ratios["best-fixed"])[1]
    return Run(
        sum(run.records_per_s for _, run in runs) / len(runs),
        sum(run.cpu_s for _, run in runs),
        max(run.max_rss_mb for _, run in runs),
        ratios=worst.ratios,
        notes=notes,
    )
