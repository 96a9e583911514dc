"""Handlers in child processes: an application that they can import, and its runs."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import framework, handlers, usage
from benchmarks.results import Run
from benchmarks.workloads import Workload
from window_consumer import App, Record

_WORK = "WC_BENCH_WORK"
_JOURNALS = "WC_BENCH_JOURNALS"
"""Variables that tell a child its work, and where to write its calls."""

_OFFSET_BITS = 48

TURNS = 5_000
"""Iterations of a loop that take about 200 us."""


def computing(_record: object) -> int:
    """Keep the interpreter busy for about 200 us."""
    total = 0
    for number in range(TURNS):
        total += number
    return total


def noting(record: Record) -> None:
    """Only record the call."""
    record.state.append(record.partition << _OFFSET_BITS | record.offset)


_WORKS: dict[str, Callable[[Any], object]] = {
    "noop": handlers.nothing,
    "computing": computing,
    "noting": noting,
}

app = App("benchmarks")
app.handler(name=framework.WORKER)(_WORKS[os.environ.get(_WORK, "noop")])


@app.lifespan
def journal() -> Iterator[array[int]]:
    """Yield a list for the calls of this process; it is written to a file at the end."""
    calls = array("Q")
    yield calls
    if calls and _JOURNALS in os.environ:
        Path(os.environ[_JOURNALS], str(os.getpid())).write_bytes(calls.tobytes())


def run(  # noqa: PLR0913 - what every run gets, and the kinds of this one
    bootstrap: str,
    topic: str,
    group: str,
    workload: Workload,
    counts: Sequence[int],
    *,
    checked: bool = False,
    one_thread: bool = False,
) -> Run:
    """Handle a topic's records once, in ``slots`` processes or in one thread.

    A ``checked`` run records every call in the children; the others are timed from outside.
    """
    work = "noting" if checked else workload.work
    with tempfile.TemporaryDirectory() as journals:
        os.environ.update({_WORK: work, _JOURNALS: journals})
        own = None if one_thread else app
        keys = {"concurrency": 1} if one_thread else {"pool": "processes"}
        planned = framework.planned
        app_, plan = planned(bootstrap, topic, group, workload, _WORKS[work], keys, own)
        used = usage.cpu_s()
        running = app_.start_plan(plan, start_timeout=framework.START_S)
        stretch = framework.watch(running, sum(counts))
        framework.end(running)
        used = usage.cpu_s() - used
        lost = sum(counts) - stretch.finished
        run_ = Run(stretch.records_per_s, used, usage.max_rss_mb(), lost=lost)
        return _judged(run_, Path(journals), counts) if checked else run_


def _judged(run_: Run, journals: Path, counts: Sequence[int]) -> Run:
    """Return a run's figures from the children's files."""
    calls: Counter[int] = Counter()
    for file in journals.iterdir():
        calls.update(array("Q", file.read_bytes()))
    expected = [
        partition << _OFFSET_BITS | offset
        for partition, count in enumerate(counts)
        for offset in range(count)
    ]
    run_.notes["children"] = len(list(journals.iterdir()))
    lost = sum(1 for each in expected if each not in calls)
    return Run(
        run_.records_per_s,
        run_.cpu_s,
        run_.max_rss_mb,
        lost=lost,
        duplicates=calls.total() - len(calls),
        notes=run_.notes,
    )
