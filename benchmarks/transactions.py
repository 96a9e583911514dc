"""``delivery: exactly_once``: its rate, when its results are visible, and what kills do to it."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from attrs import asdict
from confluent_kafka import Consumer
from confluent_kafka import Producer as ClientProducer
from confluent_kafka import TopicPartition as ClientPartition

from benchmarks import children, framework, members
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, Workload
from window_consumer import Produce, Record
from window_consumer.cli.logs import set_up
from window_consumer.model.errors import RunError
from window_consumer.runtime.replica import NUMBER

REBALANCES: Final = 5
STOPS: Final = 2
_EVERY_S: Final = 6.0
"""Between two kills."""
_STOPPED_S: Final = 12.0
"""Longer than the session (6 s) and the transaction (10 s)."""
_END_S: Final = 120.0
_LATENCY_S: Final = 8.0
_PER_S: Final = 500
_FAILS_ONE_IN: Final = 50
_deliveries = cycle((("exactly_once", "at_least_once"), ("at_least_once", "exactly_once")))


# ---- the rate, and when results are visible


def run_rate(topics: Topics, workload: Workload) -> Run:
    """Forward a topic with both deliveries, in the other order the next time; then trickle."""
    topic = topics.filled(workload.topic, lambda _: None)
    rates = {}
    for delivery in next(_deliveries):
        with _target(topics) as target:
            rates[delivery] = children.run(
                "transactions",
                bootstrap=topics.bootstrap,
                topic=topic,
                target=target,
                delivery=delivery,
                workload=workload,
            )
    with _target(topics) as source, _target(topics) as target:
        visible = children.run(
            "transactions_visible",
            bootstrap=topics.bootstrap,
            topic=source,
            target=target,
            workload=workload,
        )
    ours = rates["exactly_once"]
    ratio = ours["records_per_s"] / rates["at_least_once"]["records_per_s"]
    return Run(
        ours["records_per_s"],
        ours["cpu_s"],
        ours["max_rss_mb"],
        lost=ours["lost"],
        ratios={"at_least_once": ratio},
        notes=visible,
    )


def forward(bootstrap: str, topic: str, target: str, delivery: str, workload: Workload) -> Any:
    """Forward all records of a topic once: a child process."""
    keys = {"delivery": delivery}
    group = f"wc-bench-{uuid.uuid4().hex[:12]}"
    app, plan = framework.planned(bootstrap, topic, group, workload, _forwarding(target), keys)
    running = app.start_plan(plan, start_timeout=framework.START_S)
    stretch = framework.watch(running, workload.topic.records)
    framework.end(running)
    return asdict(Run(stretch.records_per_s, lost=workload.topic.records - stretch.finished))


def visible(bootstrap: str, topic: str, target: str, workload: Workload) -> dict[str, float]:
    """Measure how long results take from the handler to a reader: a child process."""
    group = f"wc-bench-{uuid.uuid4().hex[:12]}"

    def stamp(record: Record) -> Produce:
        return Produce(target, record.key, str(time.time()).encode())

    keys = {"delivery": "exactly_once"}
    app, plan = framework.planned(bootstrap, topic, group, workload, stamp, keys)
    running = app.start_plan(plan, start_timeout=framework.START_S)
    total = int(_LATENCY_S * _PER_S)
    writer = threading.Thread(target=_trickle, args=(bootstrap, topic, total), name="wc-bench-load")
    writer.start()
    late_ms = []
    for value, _ in _read(bootstrap, target, lambda found: found < total, fetch_ms=10):
        late_ms.append((time.time() - float(value)) * 1000)
    writer.join()
    framework.end(running)
    cuts = quantiles(late_ms, n=100)
    return {"visible_p50_ms": cuts[49], "visible_p99_ms": cuts[98]}


def _forwarding(target: str) -> Callable[[Record], Produce]:
    return lambda record: Produce(target, record.key, record.value)


def _trickle(bootstrap: str, topic: str, total: int, stop: threading.Event | None = None) -> int:
    """Write numbers, ``_PER_S`` a second; return how many."""
    producer = ClientProducer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    began = time.monotonic()
    number = 0
    while number < total and not (stop is not None and stop.is_set()):
        producer.produce(topic, b"%d" % number, b"key-%d" % (number % 200))
        producer.poll(0)
        number += 1
        time.sleep(max(0.0, began + number / _PER_S - time.monotonic()))
    if left := producer.flush(60):
        raise RunError(f"{left} records were not acked")
    return number


def _read(
    bootstrap: str, topic: str, is_wanted: Callable[[int], bool], fetch_ms: int = 100
) -> Iterator[tuple[bytes, bytes]]:
    """Yield values and keys of committed records, as they become visible."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "wc-bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": fetch_ms,
        }
    )
    consumer.assign([ClientPartition(topic, each, 0) for each in range(PARTITIONS)])
    found, last = 0, time.monotonic()
    try:
        while is_wanted(found):
            for each in consumer.consume(500, 0.01):
                if each.error() is not None:
                    raise RunError(str(each.error()))
                found, last = found + 1, time.monotonic()
                yield each.value() or b"", each.key() or b""
            if time.monotonic() - last > _END_S:
                raise RunError(f"nothing came for {_END_S:g} s, after {found} records")
    finally:
        consumer.close()


@contextmanager
def _target(topics: Topics) -> Iterator[str]:
    name = f"wc-bench-eos-{uuid.uuid4().hex[:12]}"
    topics.make(name)
    try:
        yield name
    finally:
        topics.delete(name)


# ---- kills


def run_kills(topics: Topics, workload: Workload) -> Run:
    """Forward records while members are killed, stopped and joined by others; read the results."""
    group = f"wc-bench-{uuid.uuid4().hex[:12]}"
    with (
        _target(topics) as source,
        _target(topics) as target,
        tempfile.TemporaryDirectory(prefix="wc-bench-") as folder,
    ):
        numbers: list[str] = []

        def command(name: str, _journal: Path) -> list[str]:
            return children.command(
                "transactions_member",
                bootstrap=topics.bootstrap,
                topic=source,
                target=target,
                group=group,
                number=numbers.pop() if numbers else name,
                workload=workload,
            )

        stop, written = threading.Event(), []
        writer = threading.Thread(
            target=lambda: written.append(_trickle(topics.bootstrap, source, 10**9, stop)),
            name="wc-bench-load",
        )
        with members.started(command, Path(folder)) as group_members:
            writer.start()
            began = time.perf_counter()
            try:
                _disturb(group_members, numbers, workload.kills)
            finally:
                stop.set()
                writer.join()
            group_members.until(
                lambda: all(
                    topics.committed_equals_end(each, group)
                    for each in topics.read_by(source, group)
                ),
                "the end",
                _END_S,
            )
            seconds = time.perf_counter() - began
            group_members.leave_all()
        ends = sum(topics.log_ends(target).values())
        counts = Counter(int(value) for value in _all_of(topics.bootstrap, target))
        topics.delete_copies(group)
    topics.forget(group)
    total = written[0]
    twice = sum(each - 1 for each in counts.values())
    return Run(
        total / seconds,
        lost=total - len(counts),
        notes={"twice": float(twice), "records": float(total), "log_records": float(ends)},
    )


def _disturb(group: members.Members, numbers: list[str], kills: int) -> None:
    """Kill members, which come back with the same number; stop some; let others join and leave."""

    def join(number: int) -> str:
        numbers.append(str(number))
        return group.join()

    steady = [join(place) for place in range(members.MEMBERS)]
    for kill in range(kills):
        place = kill % members.MEMBERS
        joins = (kill + 1) * REBALANCES // kills > kill * REBALANCES // kills
        guest = join(members.MEMBERS) if joins else None
        group.rest(_EVERY_S)
        if (kill + 1) * STOPS // kills > kill * STOPS // kills:
            group.signal(steady[1 - place], signal.SIGSTOP)
            group.rest(_STOPPED_S)
            group.signal(steady[1 - place], signal.SIGCONT)
        group.kill(steady[place])
        steady[place] = join(place)
        if guest is not None:
            group.leave(guest)


def _all_of(bootstrap: str, topic: str) -> Iterator[bytes]:
    """Yield the values that readers of committed records see."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "wc-bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ClientPartition(topic, each, 0) for each in range(PARTITIONS)])
    ended: set[int | None] = set()
    try:
        while len(ended) < PARTITIONS:
            for each in consumer.consume(1_000, 1.0):
                if each.error() is not None:
                    ended.add(each.partition())
                else:
                    yield each.value() or b""
    finally:
        consumer.close()


def run_member(
    bootstrap: str, topic: str, target: str, group: str, number: str, workload: Workload
) -> dict[str, Any]:
    """Run a member with a process number: a child process. Some records go over a level."""
    os.environ[NUMBER] = number

    def handle(record: Record) -> Produce:
        time.sleep(workload.wait_s)
        if int(record.value or b"") % _FAILS_ONE_IN == 0 and record.topic == topic:
            raise ValueError("at first it fails")
        return Produce(target, record.key, record.value)

    retry = {"attempts": 1, "levels": ["1s"], "on_failure": "overtake"}
    keys = {"delivery": "exactly_once", "retry": retry}
    app, plan = framework.planned(bootstrap, topic, group, workload, handle, keys)
    set_up("text", "error")  # some calls fail on purpose
    return members.serve(app.start_plan(plan, start_timeout=framework.START_S))


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"eos": run_rate, "eos-kills": run_kills}
