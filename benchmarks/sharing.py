"""Fair shares: how long a small tenant and an urgent topic wait beside a backlog.

A scene is a worker of 16 slots whose handler sleeps 10 ms, so it does some 1,500 records/s. Steady
senders send at a rate; a backlog is there from the start.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, Final

import cattrs
from attrs import asdict, field, frozen
from confluent_kafka import Producer

from benchmarks import children, framework, usage
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, Workload
from window_consumer import App, Record
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, set_up, tune
from window_consumer.model.errors import RunError

SLOTS: Final = 16
WAIT_S: Final = 0.01
LASTS_S: Final = 12.0
FIRST_S: Final = 3.0
"""Calls before that are not judged: windows fill, and costs are learnt."""

SMALL_PER_S: Final = 80.0
BACKLOG: Final = 30_000
WEIGHT: Final = 10.0

_FLUSH_S: Final = 60.0
_BY_TENANT: Final = {"by": "header('tenant')"}


@frozen
class Scene:
    """One worker, and who sends."""

    fair: Mapping[str, Any] | None
    steady: str | None = "small"
    """The class that sends at a rate."""
    backlogs: Sequence[str] = ()
    """The classes that have a backlog."""
    is_by_topic: bool = False
    """Classes are topics, not headers."""


@frozen
class Seen:
    """The measurements of a scene."""

    p99_ms: float
    """From the sending of the steady class's records to their calls."""
    records_per_s: float
    share: Mapping[str, float] = field(factory=dict)
    """Of the calls, by class."""


_SHARES: Final = {"by": "topic", "weights": {"urgent": WEIGHT}}
_STRICT: Final = {**_SHARES, "order": "strict"}
SCENES: Final[Mapping[str, Scene]] = {
    "alone": Scene(None),
    "unfair": Scene(None, backlogs=("big",)),
    "fair": Scene(_BY_TENANT, backlogs=("big",)),
    "urgent alone": Scene(_SHARES, "urgent", is_by_topic=True),
    "urgent shares": Scene(_SHARES, "urgent", ("other",), is_by_topic=True),
    "both": Scene(_SHARES, None, ("urgent", "other"), is_by_topic=True),
    "urgent strict": Scene(_STRICT, "urgent", ("other",), is_by_topic=True),
}


def play(bootstrap: str, prefix: str) -> dict[str, Any]:
    """Play all scenes, each with topics of its own that begin with ``prefix``."""
    set_up("text", "warning")
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    used = usage.cpu_s()
    topics = Topics(bootstrap)
    seen = {
        name: _play(topics, f"{prefix}-{at}", each)
        for at, (name, each) in enumerate(SCENES.items())
    }
    other = seen["both"].share.get("other", 0.0) * (WEIGHT + 1)
    notes = {
        "small_p99_ratio": seen["fair"].p99_ms / seen["alone"].p99_ms,
        "together": seen["fair"].records_per_s / seen["unfair"].records_per_s,
        "urgent_p99_ratio": seen["urgent shares"].p99_ms / seen["urgent alone"].p99_ms,
        "share_error": abs(other - 1),
        "strict_p99_ratio": seen["urgent strict"].p99_ms / seen["urgent alone"].p99_ms,
        "strict_together": seen["urgent strict"].records_per_s
        / seen["urgent shares"].records_per_s,
        "unfair_p99_ratio": seen["unfair"].p99_ms / seen["alone"].p99_ms,
        **{f"{name.replace(' ', '_')}_p99_ms": each.p99_ms for name, each in seen.items()},
    }
    rate, cpu_s = seen["fair"].records_per_s, usage.cpu_s() - used
    return asdict(Run(rate, cpu_s, usage.max_rss_mb(), notes=notes))


def run(topics: Topics, workload: Workload) -> Run:
    """Play the scenes in a process of their own."""
    del workload
    prefix = f"wc-bench-{uuid.uuid4().hex[:12]}"
    given = children.run("sharing", bootstrap=topics.bootstrap, prefix=prefix)
    return cattrs.structure(given, Run)


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"fair": run}


def _play(topics: Topics, prefix: str, scene: Scene) -> Seen:
    classes = [*([scene.steady] if scene.steady else []), *scene.backlogs]
    named = {each: f"{prefix}-{each}" if scene.is_by_topic else prefix for each in classes}
    for name in set(named.values()):
        topics.make(name)
    try:
        for each in scene.backlogs:
            _send(topics.bootstrap, named[each], each, BACKLOG, None)
        return _worked(topics.bootstrap, named, scene)
    finally:
        topics.delete_copies(prefix)
        for name in set(named.values()):
            topics.delete(name)


def _worked(bootstrap: str, named: Mapping[str, str], scene: Scene) -> Seen:
    calls: list[tuple[str, float, float]] = []
    app = App("benchmarks")

    @app.handler(*set(named.values()), name="work")
    def work(record: Record) -> None:
        now = time.time()
        calls.append(
            ((record.header("tenant") or b"").decode(), now, (record.timestamp or 0) / 1000)
        )
        time.sleep(WAIT_S)

    fair = dict(scene.fair or {})
    if fair and scene.is_by_topic:
        # The topic's name says which scene it is, even if it runs alone.
        fair["weights"] = {named.get("urgent", "urgent"): WEIGHT}
    worker: dict[str, Any] = {"group": uuid.uuid4().hex, "concurrency": SLOTS}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "workers.yaml")
        workers = {"work": worker | ({"fair": fair} if fair else {})}
        kafka = {"bootstrap.servers": bootstrap}
        file.write_text(
            json.dumps({"kafka": kafka, "workers": workers, "topics": {"create": True}})
        )
        running = app.start_plan(app.plan(file), start_timeout=framework.START_S)
    try:
        began = time.time()
        if scene.steady:
            given = bootstrap, named[scene.steady], scene.steady
            records = int(SMALL_PER_S * LASTS_S)
            sender = Thread(target=_send, args=(*given, records, SMALL_PER_S), daemon=True)
            sender.start()
            sender.join()
        else:
            time.sleep(LASTS_S)
        ended = time.time()
    finally:
        framework.end(running)
    judged = [each for each in calls if began + FIRST_S <= each[1] <= ended]
    if not judged:
        raise RunError(f"no calls in {prefix_of(named)}")
    return _seen(judged, scene.steady, ended - began - FIRST_S)


def prefix_of(named: Mapping[str, str]) -> str:
    """Return the topics of a scene, for messages."""
    return ", ".join(sorted(set(named.values())))


def _seen(judged: Sequence[tuple[str, float, float]], steady: str | None, seconds: float) -> Seen:
    waits = sorted(began - sent for name, began, sent in judged if name == steady)
    of_class: defaultdict[str, float] = defaultdict(float)
    for name, _, _ in judged:
        of_class[name] += 1 / len(judged)
    p99_ms = waits[int(len(waits) * 0.99)] * 1000 if waits else 0.0
    return Seen(p99_ms, len(judged) / seconds, of_class)


def _send(bootstrap: str, topic: str, name: str, records: int, per_s: float | None) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 2, "queue.buffering.max.messages": 200_000}
    )
    began = time.monotonic()
    for number in range(records):
        if per_s:
            time.sleep(max(0.0, began + number / per_s - time.monotonic()))
        headers: list[tuple[str, str | bytes | None]] = [("tenant", name.encode())]
        producer.produce(topic, b"x" * 100, b"%d" % number, number % PARTITIONS, headers=headers)
        if number % 1000 == 0:
            producer.poll(0)
    if left := producer.flush(_FLUSH_S):
        raise RunError(f"{left} records were not acked")
