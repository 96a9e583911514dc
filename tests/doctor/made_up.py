"""Made-up looks: a worker that has nothing to do, and what is to be different."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from window_consumer.admin.doctor.evidence import Evidence
from window_consumer.admin.doctor.samples import (
    BreakerLook,
    CallLook,
    PartitionLook,
    WorkerLook,
)
from window_consumer.engine.latency_histogram import (
    BOUNDS_S,
    Histogram,
)
from window_consumer.model.record import TopicPartition

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("orders", 1)

Step = Callable[[int], dict[str, Any]]


def calls(count: int, seconds: float, computed_s: float = 0.0) -> Histogram:
    counts = [0] * (len(BOUNDS_S) + 1)
    counts[BOUNDS_S.index(0.01)] = count
    return Histogram(tuple(counts), seconds, computed_s)


def partition(name: TopicPartition = ORDERS, **fields: Any) -> PartitionLook:
    return PartitionLook(name, **{"lag": 0, **fields})


def call(seconds: float, name: TopicPartition = ORDERS, stack: str = "") -> CallLook:
    return CallLook(name, 17, 2, seconds, stack=stack)


def breaker(state: str) -> BreakerLook:
    return BreakerLook(state, 12.0, 3, 40, "25 of 30 new records failed within 30 s")


def evidence(
    step: Step | None = None, *, looks: int = 11, ordering: str = "unordered", **more: Any
) -> Evidence:
    """A look a second; ``step`` returns what is different in each."""
    idle = WorkerLook(0.0, "charge", slots=8, running_s=0.0, partitions=(partition(),))
    return Evidence(
        worker="charge",
        where=more.pop("where", ""),
        ordering=ordering,
        pool=more.pop("pool", "threads"),
        looks=[
            evolve(idle, at_s=float(second), **({} if step is None else step(second)))
            for second in range(looks)
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
        partitions: Sequence[PartitionLook] = [
            evolve(each, lag=lag(second) if each.lag is None else each.lag)
            for each in more.get("partitions", [partition(lag=None, open=500)])
        ]
        return {
            "slots": slots,
            "busy": round(busy * slots),
            "finished": round(per_s * second),
            "durations": calls(round(per_s * second), seconds, cores * second),
            **more,
            "partitions": tuple(partitions),
        }

    return step
