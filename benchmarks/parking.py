"""Runs in which some keys fail at first, and a scan of a ladder full of copies."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple
from zlib import crc32

import cattrs
from attrs import asdict, define, field
from confluent_kafka import Producer

from benchmarks import children, framework, usage
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, TopicSpec, Workload
from window_consumer import Record
from window_consumer.engine.retry.copy_record import Target
from window_consumer.model import headers as names
from window_consumer.model.errors import RunError
from window_consumer.model.record import TopicPartition
from window_consumer.parking.topics import ParkTopics
from window_consumer.plan.topics.prepared_worker import PreparedWorker

FAILING_S = 12.0
"""Calls for records of a failing key fail for this long after the first call."""
FAILING_ONE_IN = 100
LEVELS: Final = ("2s", "4s", "9s")
"""Together longer than keys fail: no record ends among the dead letters. The topic lasts longer."""

_FLUSH_S = 120.0


class KeyFailsError(Exception):
    """Raised by the handler while a key fails."""


class Handled(NamedTuple):
    """A call that succeeded; the times are monotonic seconds."""

    key: bytes
    offset: int
    """That of the first delivery."""
    began: float
    ended: float
    was_parked: bool = False
    """It came from the park topic."""


@define
class Shop:
    """A handler that takes a moment, and fails for some keys at first."""

    wait_s: float
    began: float = 0.0
    handled: list[Handled] = field(factory=list)

    def handle(self, record: Record) -> None:
        """Handle a record, or fail."""
        now = time.perf_counter()
        self.began = self.began or now
        key = record.key or b""
        time.sleep(self.wait_s)
        if fails(key) and now < self.began + FAILING_S:
            raise KeyFailsError
        parked, ended = record.topic.endswith(".park"), time.perf_counter()
        self.handled.append(Handled(key, record.origin.offset, now, ended, parked))

    @property
    def rate(self) -> float:
        """Records/s of the keys that do not fail."""
        ended = [each.ended for each in self.handled if not fails(each.key)]
        return len(ended) / (max(ended) - self.began)

    def in_turn(self) -> Iterator[tuple[Handled, Handled]]:
        """Yield each record of a key with the next one that was called."""
        of_key: defaultdict[bytes, list[Handled]] = defaultdict(list)
        for each in sorted(self.handled, key=lambda call: call.began):
            of_key[each.key].append(each)
        for calls in of_key.values():
            yield from pairwise(calls)

    def order_violations(self) -> int:
        """Count the records that were called before the one in front of them had ended."""
        return sum(
            later.offset < before.offset or later.began < before.ended
            for before, later in self.in_turn()
        )

    def p99_gap_ms(self) -> float:
        """Return how long parked records wait once the one in front of them has ended."""
        gaps = sorted(
            later.began - before.ended
            for before, later in self.in_turn()
            if later.was_parked and before.began >= self.began + FAILING_S
        )
        return gaps[int(len(gaps) * 0.99)] * 1000 if gaps else 0.0


def fails(key: bytes) -> bool:
    """Return whether a key is one of those that fail."""
    return crc32(key) % FAILING_ONE_IN == 0


def run(
    bootstrap: str,
    topic: str,
    group: str,
    workload: Workload,
    counts: Sequence[int],
    *,
    on_failure: str,
) -> Run:
    """Handle a topic's records once, while one key in a hundred fails at first."""
    shop, total = Shop(workload.wait_s), sum(counts)
    keys = {"retry": retry(on_failure, LEVELS)}
    app, plan = framework.planned(bootstrap, topic, group, workload, shop.handle, keys)
    used = usage.cpu_s()
    running = app.start_plan(plan, start_timeout=framework.START_S)
    framework.watch(running, total)
    parked = running.counters[framework.WORKER].parked
    framework.end(running)
    used = usage.cpu_s() - used
    places = {(each.key, each.offset) for each in shop.handled}
    parks = on_failure == "park"
    return Run(
        records_per_s=shop.rate,
        cpu_s=used,
        max_rss_mb=usage.max_rss_mb(),
        lost=total - len(places),
        duplicates=len(shop.handled) - len(places),
        order_violations=shop.order_violations() if parks else 0,
        notes={"parked": float(parked), "p99_gap_ms": shop.p99_gap_ms()} if parks else {},
    )


def scan(bootstrap: str, topic: str, group: str, spec: TopicSpec) -> dict[str, Any]:
    """Fill a park topic, and read it as a worker does before it starts."""
    workload = Workload("park-scan", "", spec, ordering="key")
    keys = {"retry": retry("park", LEVELS)}
    app, plan = framework.planned(bootstrap, topic, group, workload, lambda _record: None, keys)
    prepared = app.prepare(plan, start_timeout=framework.START_S)
    (worker,) = prepared.workers
    target = worker.ladders[topic].park
    if target is None:
        raise RunError(f"{topic} has no park topic")
    _fill(bootstrap, topic, worker, target, spec)
    topics = ParkTopics(worker, plan.config.topics, prepared.oauth_token)
    places = [TopicPartition(target.topic, number) for number in range(PARTITIONS)]
    used, began = usage.cpu_s(), time.perf_counter()
    found = topics.read(places)
    seconds = time.perf_counter() - began
    lost = spec.records - sum(map(len, found.values()))
    rate = (spec.records - lost) / seconds
    return asdict(Run(rate, usage.cpu_s() - used, usage.max_rss_mb(), lost=lost))


def run_scan(topics: Topics, workload: Workload) -> Run:
    """Scan a park topic that was filled for it."""
    topic, group = (f"wc-bench-{uuid.uuid4().hex[:12]}" for _ in range(2))
    topics.make(topic)
    try:
        where = {"bootstrap": topics.bootstrap, "topic": topic, "group": group}
        return cattrs.structure(children.run("park_scan", **where, spec=workload.topic), Run)
    finally:
        topics.delete_copies(group)
        topics.delete(topic)


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"park-scan": run_scan}


def retry(on_failure: str, levels: Sequence[str]) -> Mapping[str, Any]:
    """Return the ladder of the worker."""
    return {"attempts": 1, "levels": list(levels), "when_spent": "stop", "on_failure": on_failure}


def _fill(
    bootstrap: str, topic: str, worker: PreparedWorker, target: Target, spec: TopicSpec
) -> None:
    """Write copies as a worker parks them."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 200_000}
    )
    value = b"x" * spec.value_bytes
    for number in range(spec.records):
        partition, offset = number % PARTITIONS, number // PARTITIONS
        place = b"%s/%d/%d" % (topic.encode(), partition, offset)
        headers: list[tuple[str, str | bytes | None]] = [
            (names.ID, place),
            (names.ORIGINAL_TOPIC, topic.encode()),
            (names.ORIGINAL_PARTITION, b"%d" % partition),
            (names.ORIGINAL_OFFSET, b"%d" % offset),
            (names.FORMAT, names.FORMAT_VERSION),
            (names.GROUP, worker.plan.config.group.encode()),
            (names.REASON, names.Reason.PARKED.encode()),
            (names.ORIGINAL_TIMESTAMP, b"%d" % (time.time_ns() // 1_000_000)),
        ]
        key = b"k%d" % (number % spec.keys)
        while True:
            try:
                producer.produce(target.topic, value, key, partition, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    if left := producer.flush(_FLUSH_S):
        raise RunError(f"{left} copies were not acked")
