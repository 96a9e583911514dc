"""The Spark jobs with 1, 2, 4 and 8 times the data: how their time and memory grow."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from attrs import evolve, frozen

from benchmarks import children, pipeline_dlq
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.usage import Peak
from benchmarks.workloads import PARTITIONS, Workload

TIMES: Final = (1, 2, 4, 8)
HEAP: Final = "1g"
"""Spark's own default, which must do for any amount of data."""


@frozen
class Point:
    """What a job took for one amount of data."""

    seconds: dict[str, float]
    """By what was timed."""
    memory_mb: float
    """The peak resident memory of all its processes, with a heap of ``HEAP``."""


def run(topics: Topics, workload: Workload) -> Run:
    """Run a job with 1, 2, 4 and 8 times an eighth of the workload's records.

    ``linear`` is the worst ratio of a time to the proportional multiple of the first. ``memory`` is
    the peak memory with 8 times the data over that with 1.
    """
    share = workload.topic.records // TIMES[-1]
    measure = _JOBS[workload.work]
    points = {times: measure(topics, workload, share * times) for times in TIMES}
    first, last = points[1], points[TIMES[-1]]
    ratios = [
        seconds / (times * first.seconds[name])
        for times, point in points.items()
        for name, seconds in point.seconds.items()
        if times > 1
    ]
    notes = {
        f"{name}_seconds_{times}x": seconds
        for times, point in points.items()
        for name, seconds in point.seconds.items()
    }
    notes |= {f"memory_mb_{times}x": point.memory_mb for times, point in points.items()}
    rate = share * TIMES[-1] / sum(last.seconds.values())
    growth = {"linear": max(ratios), "memory": last.memory_mb / first.memory_mb}
    return Run(rate, max_rss_mb=last.memory_mb, ratios=growth, notes=notes)


def _trace(topics: Topics, _: Workload, events: int) -> Point:
    with _topic(topics) as topic, tempfile.TemporaryDirectory(prefix="wc-bench-") as directory:
        where = {"bootstrap": topics.bootstrap, "topic": topic}
        children.run("trace_events", begin=0, events=events, **where)
        with Peak() as peak:
            answer = children.run("trace_index", directory=directory, memory=HEAP, **where)
    return Point({"index": answer["seconds"]}, peak.memory_mb)


def _audit(_topics: Topics, _: Workload, records: int) -> Point:
    with Peak() as peak:
        answer = children.run("audit_counts", records=records, memory=HEAP)
    return Point({"report": answer["notes"]["seconds"]}, peak.memory_mb)


def _dead_letters(topics: Topics, _: Workload, count: int) -> Point:
    with _topic(topics, ".dlq") as topic, Peak() as peak:
        where = (topics.bootstrap, topic)
        found = pipeline_dlq.measured(*where, count, from_kafka=False, memory=HEAP)
    return Point({"table": found["table"], "report": found["seconds"]}, peak.memory_mb)


def _backfill(topics: Topics, workload: Workload, records: int) -> Point:
    topic = topics.filled(evolve(workload.topic, records=records), lambda _text: None)
    with Peak() as peak:
        answer = children.run(
            "backfill",
            bootstrap=topics.bootstrap,
            topic=topic,
            group=f"wc-bench-{uuid.uuid4().hex[:12]}",
            workload=workload,
            counts=[records // PARTITIONS] * PARTITIONS,
            memory=HEAP,
        )
    return Point({name: records / rate for name, rate in answer["notes"].items()}, peak.memory_mb)


@contextmanager
def _topic(topics: Topics, ending: str = "") -> Iterator[str]:
    topic = f"wc-bench-{uuid.uuid4().hex[:12]}{ending}"
    topics.make(topic)
    try:
        yield topic
    finally:
        topics.delete(topic)


_JOBS: Final[Mapping[str, Callable[[Topics, Workload, int], Point]]] = {
    "trace-growth": _trace,
    "audit-growth": _audit,
    "dead-letters-growth": _dead_letters,
    "backfill-growth": _backfill,
}
RUNS: Final = dict.fromkeys(_JOBS, run)
"""By the workload's ``work``."""
