"""A run with a handler that hangs, while further records keep coming in."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence

import attrs

from benchmarks import children, framework, handlers, usage
from benchmarks.calls import Calls
from benchmarks.results import Run
from benchmarks.workloads import PARTITIONS, Workload
from window_consumer.config.units import parse_size
from window_consumer.model.errors import RunError
from window_consumer.runtime.running import Running

_CHECK_S = 0.02
_ASSIGNED_S = 60.0
_END_S = 60.0
"""How long the writer may take beyond its time."""

_LEFT_ALONE = {"stall": {"action": "report"}}
"""Otherwise the record that hangs would be moved; here it must stay and block its window."""


def run(
    bootstrap: str, topic: str, group: str, workload: Workload, counts: Sequence[int], *, hang: bool
) -> Run:
    """Measure the memory, and the rate of the partitions where nothing hangs.

    ``topic`` is empty at the start. The hanging call continues once all records are written, so
    that the run ends with everything handled.
    """
    calls = Calls(counts)
    hangs, released = threading.Event(), threading.Event()
    handler = handlers.hanging(hangs, released) if hang else handlers.nothing
    app, plan = framework.planned(
        bootstrap, topic, group, workload, calls.noting(handler), _LEFT_ALONE
    )
    used = usage.cpu_s()
    running = app.start_plan(plan, start_timeout=framework.START_S)
    _wait_until_assigned(running)
    growth = _growth_while_written(bootstrap, topic, workload)
    if hang and not hangs.is_set():
        raise RunError("nothing hangs: the first record has not been handled")
    released.set()
    framework.watch(running, sum(counts))
    framework.end(running)
    found = framework.judged(calls, workload, usage.cpu_s() - used)
    return attrs.evolve(
        found,
        records_per_s=_rate_of_the_others(calls, workload.lasts_s),
        ratios={"memory": growth / parse_size(workload.memory)},
        notes={"growth_mb": growth / 1024**2},
    )


def _rate_of_the_others(calls: Calls, lasts_s: float) -> float:
    begin = calls.first_start
    until = begin + lasts_s
    others = range(1, PARTITIONS)
    return sum(calls.ended_within(each, begin, until) for each in others) / lasts_s


def _wait_until_assigned(running: Running) -> None:
    """Wait for all partitions, so that joining the group does not count as growth."""
    deadline = time.perf_counter() + _ASSIGNED_S
    while True:
        picture = running.snapshots().get(framework.WORKER)
        if picture is not None and len(picture.partitions) == PARTITIONS:
            return
        if running.wait(_CHECK_S):
            framework.end(running)
        if time.perf_counter() > deadline:
            raise RunError(f"not all partitions were assigned within {_ASSIGNED_S:g} s")


def _growth_while_written(bootstrap: str, topic: str, workload: Workload) -> int:
    """Let the records be written; return the most bytes by which this process grew meanwhile."""
    command = children.command(
        "write", bootstrap=bootstrap, topic=topic, spec=workload.topic, lasts_s=workload.lasts_s
    )
    before = most = usage.rss_bytes()
    deadline = time.perf_counter() + workload.lasts_s + _END_S
    writer = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while writer.poll() is None:
            most = max(most, usage.rss_bytes())
            if time.perf_counter() > deadline:
                raise RunError("the writer does not end")
            time.sleep(_CHECK_S)
    finally:
        writer.kill()
        writer.wait()
    if writer.returncode:
        raise RunError(f"the writer ended with code {writer.returncode}")
    return most - before
