"""All workloads, by what they are of. A table of results lists them in this order."""

from __future__ import annotations

from benchmarks.workloads.calls import CALLS
from benchmarks.workloads.failures import FAILURES
from benchmarks.workloads.guarantees import GUARANTEES
from benchmarks.workloads.pipeline import PIPELINE
from benchmarks.workloads.services import SERVICES
from benchmarks.workloads.workload import (
    PARTITIONS,
    RATIO_OF,
    SLOW_MARK,
    WAIT_S,
    Baseline,
    Floor,
    Ordering,
    Store,
    TopicSpec,
    Work,
    Workload,
)

__all__ = [
    "PARTITIONS",
    "RATIO_OF",
    "SLOW_MARK",
    "WAIT_S",
    "WORKLOADS",
    "Baseline",
    "Floor",
    "Ordering",
    "Store",
    "TopicSpec",
    "Work",
    "Workload",
]

WORKLOADS = {each.name: each for each in (*CALLS, *FAILURES, *SERVICES, *PIPELINE, *GUARANTEES)}
