"""The rate of a bare event loop: a workload's coroutines without Kafka.

It is the same kind of loop that the framework uses: uvloop's where that is installed.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks import usage
from benchmarks.handlers import waiting_coroutine
from benchmarks.results import Run
from benchmarks.workloads import Workload
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, tune
from window_consumer.runtime.pools.event_loop import make_loop


def run(workload: Workload) -> Run:
    """Await the handler once per record, in as many tasks as there are slots."""
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    used = usage.cpu_s()
    with asyncio.Runner(loop_factory=make_loop) as runner:
        seconds = runner.run(_work(workload))
    return Run(workload.topic.records / seconds, usage.cpu_s() - used, usage.max_rss_mb())


async def _work(workload: Workload) -> float:
    handle = waiting_coroutine(workload)
    records = iter(range(workload.topic.records))

    async def slot() -> None:
        for record in records:
            await handle(record)  # type: ignore[arg-type] # it ignores the record

    began = time.perf_counter()
    await asyncio.gather(*(slot() for _ in range(workload.slots)))
    return time.perf_counter() - began
