"""Runs in which records fail: called again, moved to retry topics, or dead-lettered."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from confluent_kafka import Consumer, TopicPartition

from benchmarks import framework, usage
from benchmarks.results import Run
from benchmarks.workloads import PARTITIONS, Work, Workload
from window_consumer import Fatal, Record
from window_consumer.engine.counters import Counters
from window_consumer.model import headers as names
from window_consumer.model.copy_headers import of_copy
from window_consumer.model.errors import RunError
from window_consumer.runtime.running import Running

LEVELS = ("1s", "2s", "5s")
_LAST_CALL = len(LEVELS) + 1
_READ_S = 30.0


class DrawnError(Exception):
    """Raised by handlers for the records that were drawn."""


def run(
    bootstrap: str,
    topic: str,
    group: str,
    workload: Workload,
    counts: Sequence[int],
    *,
    failing: bool,
) -> Run:
    """Handle a topic's records once; drawn ones fail if ``failing``."""
    kind = _KINDS[workload.work](workload, group, topic, bootstrap, failing=failing)
    app, plan = framework.planned(bootstrap, topic, group, workload, kind.handle, kind.keys)
    used = usage.cpu_s()
    running = app.start_plan(plan, start_timeout=framework.START_S)
    stretch = framework.watch(running, sum(counts), kind.finished)
    kind.wait_for_the_rest(running, sum(counts))
    counters = running.counters[framework.WORKER]
    framework.end(running)
    used = usage.cpu_s() - used
    lost = sum(counts) - stretch.finished + kind.lost(counters, sum(counts))
    return Run(kind.rate(stretch), used, usage.max_rss_mb(), lost=lost, notes=kind.notes(counters))


class _Failing:
    """Drawn records fail once and succeed at the second call."""

    keys: ClassVar[Mapping[str, Any]] = {
        "retry": {"attempts": 3, "backoff": "20ms..50ms", "when_spent": "stop"}
    }

    def __init__(
        self, workload: Workload, group: str, topic: str, bootstrap: str, *, failing: bool
    ):
        self.workload = workload
        self.group = group
        self.topic = topic
        self.bootstrap = bootstrap
        self.share = workload.fails if failing else 0.0
        self.draw = random.Random(1).random

    def handle(self, record: Record) -> None:
        """Fail for some records; without failures the check costs the same."""
        if self.draw() < self.share and record.attempt == 1:
            raise DrawnError

    def finished(self, counters: Counters) -> int:
        """Return how many of the source's records are finished."""
        return counters.processed

    def wait_for_the_rest(self, running: Running, total: int) -> None:
        """Wait for what continues elsewhere after all of the source's records are finished."""

    def rate(self, stretch: framework.Stretch) -> float:
        """Return the rate of finished source records per second."""
        return stretch.records_per_s

    def lost(self, _counters: Counters, _total: int) -> int:
        """Return how many records left the source and cannot be found."""
        return 0

    def notes(self, counters: Counters) -> dict[str, float]:
        """Return other measurements."""
        return {"failures": float(counters.retried)}


class _Dying(_Failing):
    """Drawn records become dead letters at once."""

    keys: ClassVar[Mapping[str, Any]] = {"retry": {"attempts": 1, "when_spent": "dead_letter"}}

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.dead: list[tuple[int, int]] = []

    def handle(self, record: Record) -> None:
        """Fail some records for good, and record which."""
        if self.draw() < self.share:
            self.dead.append((record.partition, record.offset))
            raise Fatal

    def finished(self, counters: Counters) -> int:
        """Count the dead letters, too: each was acked."""
        return counters.processed + counters.dead_lettered

    def lost(self, counters: Counters, _total: int) -> int:
        """Look the dead letters up in their topic."""
        found = _dead_letters(self.bootstrap, f"{self.group}.{self.topic}.dlq", len(self.dead))
        return len(set(self.dead) - found) + abs(counters.dead_lettered - len(self.dead))

    def notes(self, counters: Counters) -> dict[str, float]:
        """Return the number of dead letters."""
        return {"dead_letters": float(counters.dead_lettered)}


class _Climbing(_Failing):
    """Drawn records fail at every level but the last; the source takes time.

    A copy's call time is compared with the due time in its header: both are from the same clock.
    """

    keys: ClassVar[Mapping[str, Any]] = {
        "retry": {"attempts": 1, "levels": list(LEVELS), "when_spent": "stop"}
    }

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.lateness_ms = array("d")
        self.hops: set[tuple[str, int, int]] = set()
        """The copies that were called: some are called again."""

    def handle(self, record: Record) -> None:
        """Take a moment for each record of the source; record when a copy comes."""
        if record.attempt == 1:
            time.sleep(self.workload.wait_s)
            if self.draw() < self.share:
                raise DrawnError
            return
        place = record.topic, record.partition, record.offset
        if place not in self.hops:
            due_ms = int(record.header(names.NOT_BEFORE) or b"0")
            self.lateness_ms.append(time.time() * 1000 - due_ms)
            self.hops.add(place)
        if record.attempt < _LAST_CALL:
            raise DrawnError

    def finished(self, counters: Counters) -> int:
        """Count source records that were processed or have left, without hops between levels."""
        return counters.processed + counters.moved - len(self.hops)

    def wait_for_the_rest(self, running: Running, total: int) -> None:
        """Wait until all records have reached the last level."""
        counters = running.counters[framework.WORKER]
        deadline = time.perf_counter() + _READ_S
        while counters.processed < total and not running.wait(0.05):
            if time.perf_counter() > deadline:
                break

    def lost(self, counters: Counters, total: int) -> int:
        """Count the records that have not come through."""
        return abs(total - counters.processed)

    def notes(self, _counters: Counters) -> dict[str, float]:
        """Return how punctual the copies were."""
        if not self.lateness_ms:
            return {}
        ordered = sorted(self.lateness_ms)
        return {
            "early": float(sum(each < -1.0 for each in ordered)),
            "p50_lateness_ms": ordered[len(ordered) // 2],
            "p99_lateness_ms": ordered[int(len(ordered) * 0.99)],
            "max_lateness_ms": ordered[-1],
        }


_KINDS: Mapping[Work, Callable[..., _Failing]] = {
    "failing": _Failing,
    "dying": _Dying,
    "climbing": _Climbing,
}


def _dead_letters(bootstrap: str, topic: str, expected: int) -> set[tuple[int, int]]:
    """Read the origins of dead letters; RunError where too few come."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "wc-bench-reader"})
    found: set[tuple[int, int]] = set()
    read = 0
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        deadline = time.perf_counter() + _READ_S
        while read < expected:
            messages = consumer.consume(10_000, 1.0)
            if not messages and time.perf_counter() > deadline:
                raise RunError(f"{topic} holds {read:,} dead letters instead of {expected:,}")
            for message in messages:
                hop = of_copy(message)
                found.add((hop.origin.partition, hop.offset))
            read += len(messages)
    finally:
        consumer.close()
    return found
