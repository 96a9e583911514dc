"""The loops that people write by hand: what the framework is measured against."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

from confluent_kafka import Consumer

from benchmarks import framework, usage
from benchmarks.handlers import nothing
from benchmarks.results import Run
from benchmarks.workloads import Workload
from window_consumer.kafka.settings import ConsumerNeeds, consumer_settings
from window_consumer.model.errors import RunError

Settings = Literal["tuned", "default"]

_BATCH = 500
_WAIT_S = 0.1
_COMMIT_S = 1.0
_DEADLINE_S = 60.0


def run(
    bootstrap: str,
    topic: str,
    group: str,
    workload: Workload,
    counts: Sequence[int],
    settings: Settings,
) -> Run:
    """Handle a topic's records once: consume(500), call a function for each, commit each second.

    The interpreter's settings and the function are the framework's.
    """
    tuned = _tuned(bootstrap, topic, group, workload)
    consumer = Consumer(tuned if settings == "tuned" else _default(bootstrap, group))
    used = usage.cpu_s()
    consumer.subscribe([topic])
    try:
        seconds = _handle(consumer, sum(counts))
        consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    finally:
        consumer.close()
    return Run(sum(counts) / seconds, usage.cpu_s() - used, usage.max_rss_mb())


def _tuned(bootstrap: str, topic: str, group: str, workload: Workload) -> dict[str, Any]:
    """Return the settings that the framework's consumer has for this workload."""
    _, plan = framework.planned(bootstrap, topic, group, workload, nothing)
    worker = plan.workers[0]
    needs = ConsumerNeeds(
        group=group,
        worker=worker.name,
        ordered=workload.ordering != "unordered",
        memory=worker.config.memory,
    )
    ours = consumer_settings(worker.consumer, needs, "consumer")
    # The framework finds its start offset itself.
    return {**ours, "auto.offset.reset": "earliest"}


def _default(bootstrap: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def _handle(consumer: Consumer, expected: int) -> float:
    """Return the seconds from the first record to the last."""
    left = expected
    handle = nothing
    began = 0.0
    committed_at = received_at = time.perf_counter()
    while left:
        # Asking for more than there is would wait in vain at the end.
        batch = consumer.consume(min(_BATCH, left), _WAIT_S)
        now = time.perf_counter()
        began = began or (now if batch else 0.0)
        for message in batch:
            handle(message)
        left -= len(batch)
        if batch:
            received_at = now
        elif now - received_at > _DEADLINE_S:
            raise RunError(f"no record within {_DEADLINE_S:g} s, {left:,} are missing")
        if now - committed_at >= _COMMIT_S:
            committed_at = now
            positions = [
                each for each in consumer.position(consumer.assignment()) if each.offset >= 0
            ]
            if positions:
                consumer.commit(offsets=positions, asynchronous=True)
    return time.perf_counter() - began
