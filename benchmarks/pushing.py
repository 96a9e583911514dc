"""Push: the rate of a worker that posts to a URL, and an outage of the service behind it."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import aiohttp
from attrs import asdict
from confluent_kafka import Producer

from benchmarks import children, framework, push_service, usage
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import Workload
from window_consumer import App
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, set_up, tune
from window_consumer.model.errors import RunError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.runtime.pools.event_loop import make_loop

BEGINS_S: Final = 5.0
LASTS_S: Final = 60.0
PER_S: Final = 1_000
"""Records a second while the service is up and while it is down."""

_TICK_S: Final = 0.01
_LONGEST_S: Final = 250.0
_RETRY: Final = {"attempts": 3, "backoff": "100ms..1s", "levels": ["10s", "1m"]}
_parts = cycle((("push", "push_bare"), ("push_bare", "push")))


def run_rate(topics: Topics, workload: Workload) -> Run:
    """Post a topic's records, and as many requests by hand, in alternating order."""
    topic = topics.filled(workload.topic, lambda _: None)
    given = {"bootstrap": topics.bootstrap, "topic": topic, "workload": workload}
    found = {}
    for part in next(_parts):
        with push_service.started() as service:
            found[part] = Run(**children.run(part, url=service.url, **given))
        if service.seen["taken"] != workload.topic.records:
            raise RunError(f"{part}: {service.seen} of {workload.topic.records} requests")
    ours, bare = found["push"], found["push_bare"]
    return Run(
        ours.records_per_s,
        ours.cpu_s,
        ours.max_rss_mb,
        lost=ours.lost,
        ratios={"push": ours.records_per_s / bare.records_per_s},
        notes={
            "requests_s": workload.topic.records / ours.cpu_s,
            "bare_requests_s": workload.topic.records / bare.cpu_s,
            "bare_per_s": bare.records_per_s,
        },
    )


def post_all(bootstrap: str, topic: str, url: str, workload: Workload) -> Any:
    """Post a topic's records: a child process."""
    group = f"wc-bench-{uuid.uuid4().hex[:12]}"
    app, plan = _planned(bootstrap, topic, group, url, workload, {"attempts": 1})
    running = app.start_plan(plan, start_timeout=framework.START_S)
    counters = running.counters[framework.WORKER]
    while not counters.processed and not running.wait(_TICK_S):
        """Requests count from the first answer on, without the start."""
    used = usage.cpu_s()
    stretch = framework.watch(running, workload.topic.records)
    used = usage.cpu_s() - used
    framework.end(running)
    lost = workload.topic.records - stretch.finished
    return asdict(Run(stretch.records_per_s, used, usage.max_rss_mb(), lost=lost))


def post_by_hand(bootstrap: str, topic: str, url: str, workload: Workload) -> Any:
    """Post as many values in a loop of aiohttp, with as many tasks: a child process."""
    del bootstrap, topic
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    used = usage.cpu_s()
    with asyncio.Runner(loop_factory=make_loop) as runner:
        seconds = runner.run(_post_by_hand(url, workload))
    run = Run(workload.topic.records / seconds, usage.cpu_s() - used, usage.max_rss_mb())
    return asdict(run)


async def _post_by_hand(url: str, workload: Workload) -> float:
    left = iter(range(workload.topic.records))
    value = b"v" * workload.topic.value_bytes
    connector = aiohttp.TCPConnector(limit=workload.slots)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def slot() -> None:
            for _ in left:
                async with session.post(url, data=value) as response:
                    await response.read()

        began = time.perf_counter()
        await asyncio.gather(*(slot() for _ in range(workload.slots)))
        return time.perf_counter() - began


def run_outage(topics: Topics, workload: Workload) -> Run:
    """Post records as they come, while the service answers 404 for a minute."""
    topic, group = (f"wc-bench-{uuid.uuid4().hex[:12]}" for _ in range(2))
    topics.make(topic)
    given = {"bootstrap": topics.bootstrap, "topic": topic, "group": group, "workload": workload}
    try:
        with push_service.started(BEGINS_S, LASTS_S) as service:
            found = children.run("push_outage", url=service.url, **given)
    finally:
        topics.delete_copies(group)
        topics.delete(topic)
        topics.forget(group)
    notes = {**found, "refused": float(service.seen["refused"])}
    return Run(
        workload.topic.records / found["seconds"],
        found["cpu_s"],
        lost=workload.topic.records - service.seen["ids"],
        notes=notes,
    )


def post_through_outage(
    bootstrap: str, topic: str, group: str, url: str, workload: Workload
) -> dict[str, float]:
    """Write records steadily, and post them until all are done: a child process."""
    app, plan = _planned(
        bootstrap, topic, group, url, workload, {**_RETRY, "on_failure": "overtake"}
    )
    running = app.start_plan(plan, start_timeout=framework.START_S)
    counters = running.counters[framework.WORKER]
    began = time.monotonic()
    arguments = (bootstrap, topic, workload)
    threading.Thread(target=_write_steadily, args=arguments, daemon=True).start()
    while counters.processed + counters.dead_lettered < workload.topic.records:
        if running.wait(_TICK_S) or time.monotonic() - began > _LONGEST_S:
            break
    seconds = time.monotonic() - began
    framework.end(running)
    return {
        "moved": float(counters.moved + counters.dead_lettered),
        "dead_letters": float(counters.dead_lettered),
        "seconds": seconds,
        "cpu_s": usage.cpu_s(),
    }


def _write_steadily(bootstrap: str, topic: str, workload: Workload) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
    value = b"v" * workload.topic.value_bytes
    began = time.monotonic()
    for number in range(workload.topic.records):
        ahead = number / PER_S - (time.monotonic() - began)
        if ahead > _TICK_S:
            time.sleep(ahead)
            producer.poll(0)
        producer.produce(topic, value)
    producer.flush()


def _planned(
    bootstrap: str, topic: str, group: str, url: str, workload: Workload, retry: Mapping[str, Any]
) -> tuple[App, AppPlan]:
    """Return an application without handlers, whose worker posts to a URL."""
    set_up("text", "warning")
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    worker = {
        "topics": [topic],
        "group": group,
        "concurrency": workload.slots,
        "retry": dict(retry),
        "http": {"url": url},
    }
    config = {"kafka": {"bootstrap.servers": bootstrap}, "workers": {framework.WORKER: worker}}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "workers.yaml"
        file.write_text(json.dumps(config))
        app = App("benchmarks")
        return app, app.plan(file)


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {
    "push": run_rate,
    "push-outage": run_outage,
}
