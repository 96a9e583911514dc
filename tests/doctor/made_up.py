"""Made-up observations: an idle worker, and differences from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, fields_dict

from window_consumer.admin.doctor.evidence import WorkerEvidence
from window_consumer.admin.doctor.samples import WorkerLook
from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.latency_histogram import BOUNDS_S, Histogram
from window_consumer.engine.windows_snapshot import (
    BreakerSnapshot,
    CallSnapshot,
    Lag,
    PartitionSnapshot,
    WindowsSnapshot,
)
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.worker_snapshot import CallStack, WorkerSnapshot

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("orders", 1)

Step = Callable[[int], dict[str, Any]]
"""Differences at a second: fields of the observation, the worker, its windows or its counters."""


def calls(count: int, seconds: float, computed_s: float = 0.0) -> Histogram:
    counts = [0] * (len(BOUNDS_S) + 1)
    counts[BOUNDS_S.index(0.01)] = count
    return Histogram(tuple(counts), seconds, computed_s)


def partition(
    name: TopicPartition = ORDERS, lag: int | None = 0, **fields: Any
) -> PartitionSnapshot:
    return PartitionSnapshot(name, lag=Lag(lag), **fields)


def call(seconds: float, name: TopicPartition = ORDERS, offset: int = 17) -> CallSnapshot:
    return CallSnapshot(name, offset, 2, seconds)


def stack(text: str, name: TopicPartition = ORDERS, offset: int = 17) -> CallStack:
    return CallStack(topic=name.topic, partition=name.partition, offset=offset, stack=text)


def breaker(state: str) -> BreakerSnapshot:
    why = "25 of 30 new records failed within 30 s"
    return BreakerSnapshot(BreakerState(state), 3, 40, 12.0, why)


def look(at_s: float, **given: Any) -> WorkerLook:
    """A look at a worker, with each of these in the part that has such a field."""

    def of(kind: type) -> dict[str, Any]:
        return {name: given.pop(name) for name in fields_dict(kind) if name in given}

    looked = {"running": 0, "running_s": 0.0, **of(WorkerLook)}
    windows = WindowsSnapshot(
        **{"partitions": (partition(),), "calls": (), "slots": 8, **of(WindowsSnapshot)},
        counters=Counters(**of(Counters)),
    )
    worker = {"phase": "running", "is_ready": True, **of(WorkerSnapshot)}
    assert not given, given
    seen = WorkerSnapshot(name="charge", windows=windows, **worker)
    return WorkerLook(at_s, seen, windows, **looked)


def evidence(
    step: Step | None = None, *, looks: int = 11, ordering: str = "unordered", **more: Any
) -> WorkerEvidence:
    """An observation per second; ``step`` returns the differences in each."""
    return WorkerEvidence(
        worker="charge",
        where=more.pop("where", ""),
        ordering=ordering,
        pool=more.pop("pool", "threads"),
        looks=[
            look(float(second), **({} if step is None else step(second))) for second in range(looks)
        ],
        **more,
    )


def working(
    *,
    busy: float,
    per_s: float,
    lag: Callable[[int], int] = lambda _: 5000,
    cores: float = 0.0,
    slots: int = 8,
    **more: Any,
) -> Step:
    """A share of the slots' time is busy, so many records are finished, so many lag."""

    def step(second: int) -> dict[str, Any]:
        seconds = busy * slots * second
        partitions: Sequence[PartitionSnapshot] = [
            with_lag(each, lag(second)) if each.unfinished is None else each
            for each in more.get("partitions", [partition(lag=None, open=500)])
        ]
        return {
            "slots": slots,
            "running": round(busy * slots),
            "processed": round(per_s * second),
            "durations": calls(round(per_s * second), seconds, cores * second),
            **more,
            "partitions": tuple(partitions),
        }

    return step


def with_lag(of: PartitionSnapshot, records: int) -> PartitionSnapshot:
    return evolve(of, lag=Lag(records))
