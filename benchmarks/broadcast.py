"""Broadcast: three processes read a topic into a cache each, beside three bare readers.

All processes of a trio begin at the same moment, and each is ready when it has handled everything.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import cattrs
from attrs import frozen
from confluent_kafka import Consumer, TopicPartition

from benchmarks import children, framework, usage
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, TopicSpec, Workload
from window_consumer import Record
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, tune
from window_consumer.kafka.settings import ConsumerNeeds, consumer_settings
from window_consumer.model.errors import RunError

READERS: Final = 3
TRIOS: Final = 3
"""Trios of each kind per run, in turn: each takes a second or two, so the median counts."""

_CHECK_S: Final = 0.002
_DEADLINE_S: Final = 120.0
_BATCH: Final = 500
_WAIT_S: Final = 0.1

Kind = Literal["ours", "bare"]
KINDS: Final[Sequence[Kind]] = ("ours", "bare")


@frozen
class Reader:
    """What one process has seen."""

    ready_s: float
    """From the common start on."""
    lost: int
    twice: int
    cpu_s: float
    max_rss_mb: float


@frozen
class Gate:
    """A folder where processes report that they are prepared, and learn that all are."""

    folder: Path
    number: int

    def pass_(self) -> None:
        """Report this process, and wait for the others."""
        (self.folder / str(self.number)).touch()
        deadline = time.monotonic() + _DEADLINE_S
        while not (self.folder / "open").exists():
            if time.monotonic() > deadline:
                raise RunError("the other processes did not come")
            time.sleep(_CHECK_S)

    def open(self, is_over: Callable[[], bool]) -> None:
        """Open the gate once ``number`` processes have come, unless ``is_over``."""
        while len(list(self.folder.iterdir())) < self.number and not is_over():
            time.sleep(_CHECK_S)
        (self.folder / "open").touch()


class Seen:
    """The cache of one process, and how often it got each record."""

    def __init__(self, records: int):
        self.cache: dict[bytes | None, bytes | None] = {}
        self._times = [bytearray(records // PARTITIONS) for _ in range(PARTITIONS)]

    def handle(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        self._times[partition][offset] += 1
        self.cache[key] = value

    @property
    def lost(self) -> int:
        return sum(each.count(0) for each in self._times)

    @property
    def twice(self) -> int:
        return sum(times > 1 for each in self._times for times in each)


def read(bootstrap: str, topic: str, records: int, gate: str, number: int, kind: Kind) -> Any:
    """Read a topic in this process, once the gate, a folder, is open."""
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    seen = Seen(records)
    how: Callable[[str, str, Seen, Gate], float] = _ours if kind == "ours" else _bare
    ready_s = how(bootstrap, topic, seen, Gate(Path(gate), number))
    found = Reader(ready_s, seen.lost, seen.twice, usage.cpu_s(), usage.max_rss_mb())
    return cattrs.unstructure(found)


def _ours(bootstrap: str, topic: str, seen: Seen, gate: Gate) -> float:
    def handle(record: Record) -> None:
        seen.handle(record.partition, record.offset, record.key, record.value)

    keys = {
        "delivery": "broadcast",
        "broadcast": {"from": "earliest"},
        "retry": {"attempts": 1},
        "group": None,
    }
    workload = Workload("broadcast", "", TopicSpec(records=0))
    app, plan = framework.planned(bootstrap, topic, "", workload, handle, keys)
    gate.pass_()
    began = time.perf_counter()
    running = app.start_plan(plan, start_timeout=framework.START_S)
    try:
        while not running.workers[0].outline().is_ready:
            if running.wait(_CHECK_S) or time.perf_counter() - began > _DEADLINE_S:
                raise RunError("the worker did not become ready")
        ready_s = time.perf_counter() - began
    finally:
        framework.end(running)
    return ready_s


def _bare(bootstrap: str, topic: str, seen: Seen, gate: Gate) -> float:
    needs = ConsumerNeeds(group=None, worker="bare", ordered=False, memory=256 * 2**20)
    settings = consumer_settings({"bootstrap.servers": bootstrap}, needs, "classic")
    gate.pass_()
    began = time.perf_counter()
    consumer = Consumer(settings)
    names = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(each, timeout=framework.START_S)[1] for each in names)
    consumer.assign(names)
    while left:
        for message in consumer.consume(min(_BATCH, left), _WAIT_S):
            left -= 1
            where = message.partition() or 0, message.offset() or 0
            seen.handle(*where, message.key(), message.value())
        if time.perf_counter() - began > _DEADLINE_S:
            raise RunError(f"{left} records did not come")
    ready_s = time.perf_counter() - began
    consumer.close()
    return ready_s


def run(topics: Topics, workload: Workload) -> Run:
    """Let three bare readers read a topic, then three processes of ours."""
    topic = f"wc-bench-{uuid.uuid4().hex[:12]}"
    records = workload.topic.records
    topics.make(topic)
    try:
        children.run("write", bootstrap=topics.bootstrap, topic=topic, spec=workload.topic)
        trios = [
            (kind, _trio(topics.bootstrap, topic, records, kind))
            for number in range(TRIOS)
            for kind in (KINDS if number % 2 else reversed(KINDS))
        ]
    finally:
        topics.delete(topic)
    ready_s, bare_s = (
        median(mean(each.ready_s for each in trio) for of, trio in trios if of == kind)
        for kind in KINDS
    )
    ours = [each for kind, trio in trios if kind == "ours" for each in trio]
    return Run(
        records / ready_s,
        mean(each.cpu_s for each in ours),
        max(each.max_rss_mb for each in ours),
        lost=sum(each.lost for each in ours),
        ratios={"ready": ready_s / bare_s},
        notes={
            "twice": sum(each.twice for each in ours),
            "ready_s": ready_s,
            "last_ready_s": max(each.ready_s for each in ours),
            "bare_s": bare_s,
        },
    )


def _trio(bootstrap: str, topic: str, records: int, kind: Kind) -> list[Reader]:
    given = {"bootstrap": bootstrap, "topic": topic, "records": records, "kind": kind}
    with TemporaryDirectory() as gate, ThreadPoolExecutor(READERS) as pool:
        runs = [
            pool.submit(children.run, "broadcast", gate=gate, number=number, **given)
            for number in range(READERS)
        ]
        Gate(Path(gate), READERS).open(lambda: any(each.done() for each in runs))
        return [cattrs.structure(each.result(), Reader) for each in runs]


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"broadcast": run}
