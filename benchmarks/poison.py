"""Runs in which some records always fail: which records wait, and when dead letters come.

At the same time and in the same process, a second worker handles as many records without a bad one,
so that other load affects both. Healthy records are timed until the end of their call, from their
writing, or from the first call if they were there before. A dead letter may take what the policy
states (``window-consumer check`` prints it), plus the calls on the way.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from statistics import quantiles
from typing import Any

from attrs import define, field, frozen
from confluent_kafka import Consumer, TopicPartition

from benchmarks import framework, usage
from benchmarks.records import Writer
from benchmarks.results import Run
from benchmarks.workloads import PARTITIONS, Workload
from window_consumer import Record
from window_consumer.config.units import parse_duration
from window_consumer.engine.counters import Counters
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.model import headers as names
from window_consumer.model.errors import RunError
from window_consumer.runtime.running import Running

LEVELS = ("500ms", "1s")
SHARES = (0.01, 0.1, 0.3)
LATE_S = 1.0
"""How late a dead letter may come after the policy's time: slots are free for its calls, but on a
busy machine the way to the broker and back takes a moment.
"""

WARM_UP_S = 1.0

_SEED = 31
RATE_PER_S = 150
_BAD = b"bad"
_TAIL = b"tail"
TAIL_PER_S = 25
TAIL_S = 8.0
"""Healthy records follow until the last copies have left: a record leaves only beside successes.
They are not measured."""
_END_S = 60.0
_READ_S = 20.0
_CHECK_S = 0.01


@frozen
class Scene:
    """One run: the share of bad records, and its circumstances."""

    share: float
    levels: bool
    traffic: bool
    """Records keep coming in; else all are there at the start, and few others follow."""

    @property
    def name(self) -> str:
        """The name in the report."""
        parts = f"{self.share:.0%}", "levels" if self.levels else "local"
        return "-".join((*parts, "traffic" if self.traffic else "backlog"))


SCENES = tuple(
    Scene(share, levels, traffic)
    for traffic in (True, False)
    for levels in (False, True)
    for share in SHARES
)


class BadRecordError(Exception):
    """Raised by the handler for bad records, on every call."""


@define
class Shop:
    """A handler that takes a moment; with traffic also for bad records."""

    wait_s: float
    bad_wait_s: float
    latencies_s: array[float] = field(factory=lambda: array("d"))
    """Of healthy records, without the first second, in which threads and connections start."""
    calls: int = 0
    """Calls for healthy records."""
    places: set[tuple[int, int]] = field(factory=set)
    began: float = 0.0
    """When the first call began. Records that were there before could have been handled then."""

    def handle(self, record: Record) -> None:
        """Handle a record, or fail."""
        now = time.time()
        self.began = self.began or now
        if (record.value or b"").startswith(_BAD):
            time.sleep(self.bad_wait_s)
            raise BadRecordError
        time.sleep(self.wait_s)
        written = (record.timestamp or 0) / 1000
        is_measured = not (record.value or b"").startswith(_TAIL)
        if is_measured and not self.began < written < self.began + WARM_UP_S:
            self.latencies_s.append(time.time() - max(written, self.began))
        self.calls += 1
        self.places.add((record.partition, record.offset))


@frozen
class Side:
    """One of the two workers of a scene."""

    topic: str
    shop: Shop
    running: Running

    @property
    def counters(self) -> Counters:
        """The worker's counters."""
        return self.running.counters[framework.WORKER]

    @property
    def p99_s(self) -> float:
        """The 99th percentile of its healthy records' latency."""
        return quantiles(self.shop.latencies_s, n=100)[98]


def alone(topic: str) -> str:
    """Return the name of the topic, and group, with only healthy records."""
    return f"{topic}-alone"


def run(
    bootstrap: str,
    topic: str,
    group: str,
    workload: Workload,
    counts: Sequence[int],
    *,
    scene: Mapping[str, Any],
) -> Run:
    """Write and handle ``workload.topic.records`` records, twice; return the results."""
    given, total = Scene(**scene), sum(counts)
    bad = _drawn(total, given.share)
    retry: dict[str, Any] = {"attempts": 3, "when_spent": "dead_letter", "on_failure": "overtake"}
    if given.levels:
        retry |= {"attempts": 2, "levels": list(LEVELS)}

    def start(topic: str, group: str) -> Side:
        shop = Shop(workload.wait_s, workload.wait_s if given.traffic else 0.0)
        keys = {"retry": retry}
        app, plan = framework.planned(bootstrap, topic, group, workload, shop.handle, keys)
        return Side(topic, shop, app.start_plan(plan, start_timeout=framework.START_S))

    topics = {topic: bad, alone(topic): set[int]()}

    def write(each_s: float) -> None:
        _write(bootstrap, topics, range(total), each_s)

    if not given.traffic:
        write(0.0)
    used = usage.cpu_s()
    sides = [start(topic, group), start(alone(topic), alone(group))]
    if given.traffic:
        for each in sides:
            _until_assigned(each.running)
        write(1 / RATE_PER_S)
    measured, total = total, total + round(TAIL_S * TAIL_PER_S)
    _write(bootstrap, topics, range(measured, total), 1 / TAIL_PER_S, _TAIL)
    for each in sides:
        framework.watch(each.running, total, lambda did: did.processed + did.dead_lettered)
        framework.end(each.running)
    poisoned, healthy = sides
    shop = poisoned.shop
    late, found = _late(bootstrap, f"{group}.{topic}.dlq", retry, shop.bad_wait_s, len(bad))
    return Run(
        total / max(time.time() - shop.began, _CHECK_S),
        usage.cpu_s() - used,
        usage.max_rss_mb(),
        lost=total - len(shop.places) - found,
        duplicates=shop.calls - len(shop.places),
        ratios={given.name: poisoned.p99_s / healthy.p99_s},
        notes={
            "p99_s": poisoned.p99_s,
            "dead_letters": float(found),
            "dead_letters_late": float(sum(each > LATE_S for each in late)),
            "latest_s": max(late, default=0.0),
            "opened": float(poisoned.counters.breaker_opened),
        },
    )


def _drawn(total: int, share: float) -> set[int]:
    """Return the numbers of the bad records: random, but the same in each run."""
    return set(random.Random(_SEED).sample(range(total), round(total * share)))


def _write(
    bootstrap: str,
    topics: Mapping[str, set[int]],
    numbers: range,
    each_s: float,
    good: bytes = b"good",
) -> None:
    """Write records to several topics at the same time; each names its bad ones."""
    writers = [(Writer(bootstrap, topic), bad) for topic, bad in topics.items()]
    began = time.perf_counter()
    for place, number in enumerate(numbers):
        for writer, bad in writers:
            if each_s:
                writer.serve(max(0.0, began + place * each_s - time.perf_counter()))
            value = _BAD if number in bad else good
            writer.write(number % PARTITIONS, b"%d" % number, value)
    for writer, _ in writers:
        writer.finish()


def _until_assigned(running: Running) -> None:
    deadline = time.perf_counter() + _END_S
    while True:
        picture = running.snapshots().get(framework.WORKER)
        if picture is not None and len(picture.partitions) >= PARTITIONS:
            return
        if running.wait(_CHECK_S):
            framework.end(running)
        if time.perf_counter() > deadline:
            raise RunError(f"not all partitions were assigned within {_END_S:g} s")


def _late(
    bootstrap: str, topic: str, retry: Mapping[str, Any], call_s: float, expected: int
) -> tuple[list[float], int]:
    """Return each dead letter's delay beyond the policy's time, and the number of them."""
    levels = tuple(Level(each, parse_duration(each)) for each in retry.get("levels", ()))
    waits = RetryRules(attempts=retry["attempts"], levels=levels).schedule()
    allowed_s = sum(wait.longest_s for wait in waits) + len(waits) * call_s
    late = []
    places = set()
    for copy in _dead_letters(bootstrap, topic, expected):
        found = dict(copy.headers() or ())
        first_s = int(found[names.FIRST_FAILURE]) / 1000
        late.append(copy.timestamp()[1] / 1000 - first_s - allowed_s)
        places.add((found[names.ORIGINAL_PARTITION], found[names.ORIGINAL_OFFSET]))
    return late, len(places)


def _dead_letters(bootstrap: str, topic: str, expected: int) -> Iterator[Any]:
    if not expected:
        return
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "wc-bench-reader"})
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        deadline = time.perf_counter() + _READ_S
        read = 0
        while read < expected and time.perf_counter() < deadline:
            for message in consumer.consume(10_000, 0.5):
                read += 1
                yield message
    finally:
        consumer.close()


def joined(found: Sequence[Run]) -> Run:
    """Return the runs of all scenes as one: their worst figures."""
    ratios = {name: ratio for each in found for name, ratio in each.ratios.items()}
    return Run(
        found[0].records_per_s,
        sum(each.cpu_s for each in found),
        max(each.max_rss_mb for each in found),
        lost=sum(each.lost for each in found),
        duplicates=sum(each.duplicates for each in found),
        committed_equals_end=all(each.committed_equals_end for each in found),
        ratios={"p99_ratio": max(ratios.values()), **ratios},
        notes={
            "dead_letters": sum(each.notes["dead_letters"] for each in found),
            "dead_letters_late": sum(each.notes["dead_letters_late"] for each in found),
            "latest_s": max(each.notes["latest_s"] for each in found),
            "opened": sum(each.notes["opened"] for each in found),
        },
    )
