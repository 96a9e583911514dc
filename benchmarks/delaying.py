"""The delay service: how punctually it delivers, and how fast records pass through its levels."""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import cattrs
from attrs import asdict, field, frozen
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks import children, framework, members, usage
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, TopicSpec, Workload
from window_consumer import App
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, set_up, tune
from window_consumer.model import headers as names
from window_consumer.model.errors import RunError
from window_consumer.runtime.replica import NUMBER
from window_consumer.runtime.running import Running

WORKER = "delay"
SPREAD_S: Final = 60.0
"""Records are due within this many seconds of their sending."""
SENT_PER_S: Final = 5000
"""A service that is behind delivers late: this is a quarter of its hops in a second."""

LEVELS: Final = ("5s", "10s", "30s", "1m")

_FAR_S: Final = 7200.0
_BEGIN_S: Final = 240.0
_WRITE_S: Final = 120.0
_PATIENCE_S: Final = 20.0
"""If nothing is delivered for this long after the last record was due, the others are lost."""


class Place(NamedTuple):
    """Where a service and its target are: the first arguments of all parts."""

    bootstrap: str
    topic: str
    target: str


class Arrival(NamedTuple):
    """A record that was delivered; the times are milliseconds since 1970."""

    number: int
    due_ms: int
    appended_ms: int
    """When the broker had it."""


def punctual(
    bootstrap: str, topic: str, target: str, spec: TopicSpec, directory: str | None
) -> dict[str, Any]:
    """Deliver records with delays of up to a minute, and compare the broker's time with theirs.

    They are sent once the service has its partitions, and with them its wheels. The target's
    records have the time of their appending.
    """
    used = usage.cpu_s()
    with _service(bootstrap, topic, target, directory) as running:
        wait_until_begun(running, topic)
        sent_s = spec.records / SENT_PER_S
        due_ms = sent_evenly(spec.records, sent_s, SPREAD_S)
        write(bootstrap, topic, target, due_ms, spec.value_bytes)
        wanted = set(range(spec.records))
        found = arrivals(bootstrap, target, wanted, time.time() + SPREAD_S)
    seen = {each.number for each in found}
    rate = len(seen) / (sent_s + SPREAD_S)
    lost, twice = spec.records - len(seen), len(found) - len(seen)
    cpu_s = usage.cpu_s() - used
    run = Run(rate, cpu_s, usage.max_rss_mb(), lost=lost, duplicates=twice, notes=lateness(found))
    return asdict(run)


def sent_evenly(records: int, sent_s: float, farthest_s: float) -> Iterator[int]:
    """Yield when each record is due, in milliseconds since 1970, when it is time to send it.

    They are sent within ``sent_s`` seconds, and due up to ``farthest_s`` seconds later.
    """
    draw, began = random.Random(7), time.monotonic()
    for number in range(records):
        early_s = began + sent_s * number / records - time.monotonic()
        if early_s > 0:
            time.sleep(early_s)
        yield int((time.time() + draw.random() * farthest_s) * 1000)


def lateness(found: Iterable[Arrival]) -> dict[str, float]:
    """Return how late records were delivered; an early one has a negative value."""
    ordered = sorted(float(each.appended_ms - each.due_ms) for each in found)
    return {
        "early": float(sum(each < 0 for each in ordered)),
        "p50_lateness_ms": ordered[len(ordered) // 2],
        "p99_lateness_ms": ordered[int(len(ordered) * 0.99)],
        "max_lateness_ms": ordered[-1],
    }


def forward(
    bootstrap: str, topic: str, target: str, spec: TopicSpec, directory: str | None
) -> dict[str, Any]:
    """Copy records that are due in two hours from the entry topic into a level."""
    due = int((time.time() + _FAR_S) * 1000)
    with _service(bootstrap, topic, target, directory):
        """Its topics exist from now on."""
    write(bootstrap, topic, target, [due] * spec.records, spec.value_bytes)
    used = usage.cpu_s()
    with _service(bootstrap, topic, target, directory) as running:
        stretch = framework.watch(running, spec.records, lambda found: found.delayed, WORKER)
    lost = spec.records - stretch.finished
    return asdict(Run(stretch.records_per_s, usage.cpu_s() - used, usage.max_rss_mb(), lost=lost))


def run_member(
    bootstrap: str,
    topic: str,
    target: str,
    levels: Sequence[str] | None,
    directory: str | None = None,
    exact_as: str = "",
) -> dict[str, Any]:
    """Run the service until it is killed: a child process; exactly once as this process."""
    os.environ[NUMBER] = exact_as
    more = {"delivery": "exactly_once"} if exact_as else {}
    return members.serve(start(bootstrap, topic, target, levels, directory, more))


@contextmanager
def service_topics(topics: Topics) -> Iterator[Place]:
    """Yield topics that exist until the end of the block."""
    topic, target = (f"wc-bench-{uuid.uuid4().hex[:12]}" for _ in range(2))
    topics.make(topic)
    topics.make(target, config={"message.timestamp.type": "LogAppendTime"})
    try:
        yield Place(topics.bootstrap, topic, target)
    finally:
        topics.delete_copies(topic)
        for name in (topic, target):
            topics.delete(name)


@contextmanager
def wheel_directory(workload: Workload) -> Iterator[str | None]:
    """Yield the directory of the wheel; None for a service that has none."""
    with tempfile.TemporaryDirectory(prefix="wc-bench-") as directory:
        yield directory if workload.store == "wheel" else None


def _run(part: str, topics: Topics, workload: Workload) -> Run:
    """Run the delay service with topics of its own."""
    with service_topics(topics) as where, wheel_directory(workload) as directory:
        found = children.run(part, **where._asdict(), spec=workload.topic, directory=directory)
    return cattrs.structure(found, Run)


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {
    "delay-exact": partial(_run, "delay_exact"),
    "delay-forward": partial(_run, "delay_forward"),
}


@contextmanager
def _service(bootstrap: str, topic: str, target: str, directory: str | None) -> Iterator[Running]:
    running = start(bootstrap, topic, target, LEVELS, directory)
    try:
        yield running
    finally:
        framework.end(running)


def wait_until_begun(running: Running, topic: str) -> None:
    """Wait until the service takes records of all partitions; RunError if that takes too long."""
    ends = time.monotonic() + _BEGIN_S
    while True:
        (found,) = running.snapshots().values()
        if sum(each.name.topic == topic for each in found.partitions) == PARTITIONS:
            return
        if time.monotonic() > ends or running.wait(0.02):
            raise RunError(f"the service has not begun within {_BEGIN_S:g} s")


def start(
    bootstrap: str,
    topic: str,
    target: str,
    levels: Sequence[str] | None,
    directory: str | None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Running:
    """Start the delay service with its topic, one target, and these levels or those by default.

    With a directory, it has a wheel there.
    """
    section: dict[str, Any] = {"to": [target], "topic": topic, "partitions": PARTITIONS, **more}
    if levels is not None:
        section["levels"] = list(levels)
    if directory is not None:
        section |= {"store": "wheel", "directory": directory}
    set_up("text", "warning")
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    app = App("benchmarks")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "workers.yaml")
        kafka = {"bootstrap.servers": bootstrap}
        config.write_text(json.dumps({"kafka": kafka, "delay": section}))
        plan = app.plan(config)
    return app.start_plan(plan, start_timeout=framework.START_S)


@frozen
class Cancelled:
    """Numbers of cancelled records."""

    asked: set[int] = field(factory=set)
    in_time: set[int] = field(factory=set)
    """Those whose cancellation was acked a second before they were due: the service promises not
    to deliver them, and nothing about the others."""


def write(
    bootstrap: str,
    topic: str,
    target: str,
    due_ms: Iterable[int],
    size: int,
    cancel_one_in: int = 0,
) -> Cancelled:
    """Write records that are due at these times, in milliseconds since 1970.

    Of those due in ten seconds or later, one in ``cancel_one_in`` is cancelled at once.
    """
    cancelled = Cancelled()

    def acked(error: KafkaError | None, message: Message) -> None:
        number, due_ms = map(int, (message.value() or b"").split())
        if error is None and time.time() * 1000 + 1_000 < due_ms:
            cancelled.in_time.add(number)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 200_000}
    )
    for number, each in enumerate(due_ms):
        value = b"%d %d " % (number, each)
        headers: list[tuple[str, str | bytes | None]] = [
            (names.DELIVER_TO, target.encode()),
            (names.DELIVER_AT, b"%d" % each),
        ]
        if cancel_one_in:
            headers.append((names.ID, b"%d" % number))
        while True:
            try:
                producer.produce(
                    topic,
                    value.ljust(size, b"x"),
                    b"k%d" % (number % 1000),
                    number % PARTITIONS,
                    headers=headers,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if cancel_one_in and number % cancel_one_in == 0 and each > time.time() * 1000 + 10_000:
            cancelled.asked.add(number)
            cancellation = b"%d %d" % (number, each)
            producer.produce(f"{topic}.cancel", cancellation, b"%d" % number, on_delivery=acked)
        producer.poll(0)
    if left := producer.flush(_WRITE_S):
        raise RunError(f"{left} records were not acked")
    return cancelled


def arrivals(bootstrap: str, target: str, wanted: AbstractSet[int], last_s: float) -> list[Arrival]:
    """Return what was delivered, once all wanted numbers are among it.

    It gives up some time after ``last_s``, in seconds since 1970, if no more are delivered.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "wc-bench-reader"})
    found: list[Arrival] = []
    missing = set(wanted)
    try:
        consumer.assign([TopicPartition(target, each, 0) for each in range(PARTITIONS)])
        changed = time.time()
        while missing and time.time() < max(last_s, changed) + _PATIENCE_S:
            for message in consumer.consume(10_000, 0.5):
                if error := message.error():
                    raise RunError(f"{target}: {error}")
                number, due_ms, _ = (message.value() or b"").split(b" ", 2)
                found.append(Arrival(int(number), int(due_ms), message.timestamp()[1]))
                missing.discard(found[-1].number)
                changed = time.time()
    finally:
        consumer.close()
    return found
