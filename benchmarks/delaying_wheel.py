"""The wheel: a second with many records, a million that wait, and a host that has no files yet."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks import children, delaying, framework, members, usage
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import TopicSpec, Workload
from window_consumer.model.errors import RunError

_WAITING: Final = 1_000_000
_NEAREST_S: Final = 1800.0
_FARTHEST_S: Final = 7000.0
"""Waiting records are due after the end of the run, and in the wheel."""

_BURST_IN_S: Final = 20.0
"""All records of the burst wait before the first one is due."""


def run_wheel(topics: Topics, workload: Workload) -> Run:
    """Deliver the records of one second; let a million wait, and move them to another host."""
    burst = _burst(topics, workload.topic)
    with (
        delaying.service_topics(topics) as where,
        tempfile.TemporaryDirectory(prefix="wc-bench-") as folder,
    ):

        def host(name: str, records: int = 0) -> Mapping[str, float]:
            path = str(Path(folder, name))
            found: Mapping[str, float] = children.run(
                "delay_host", **where._asdict(), directory=path, records=records
            )
            return found

        client = host("client")
        now_s, draw = time.time(), random.Random(7)
        due_ms = (
            int((now_s + draw.uniform(_NEAREST_S, _FARTHEST_S)) * 1000) for _ in range(_WAITING)
        )
        delaying.write(*where, due_ms, workload.topic.value_bytes)
        first, again, new = host("first", _WAITING), host("first"), host("new")
    return Run(
        burst["records_per_s"],
        max_rss_mb=max(first["rss_mb"], new["rss_mb"]),
        lost=round(burst["lost"]),
        notes={
            "early": burst["early"],
            "late_s": burst["max_lateness_ms"] / 1000,
            "taken_per_s": first["records_per_s"],
            "waiting_rss_mb": again["rss_mb"] - client["rss_mb"],
            "taking_rss_mb": first["rss_mb"] - client["rss_mb"],
            "rebuild_rss_mb": new["rss_mb"] - client["rss_mb"],
            "restart_s": again["begun_s"] - client["begun_s"],
            "rebuild_s": new["begun_s"] - client["begun_s"],
        },
    )


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"delay-wheel": run_wheel}


def _burst(topics: Topics, spec: TopicSpec) -> Mapping[str, float]:
    """Let records wait that are due in the same second; return when they were delivered."""
    with (
        delaying.service_topics(topics) as where,
        tempfile.TemporaryDirectory(prefix="wc-bench-") as folder,
    ):

        def command(_name: str, _file: Path) -> list[str]:
            path = str(Path(folder, "wheel"))
            return children.command("delay_member", **where._asdict(), levels=None, directory=path)

        with members.started(command, Path(folder)) as service:
            member = service.join()
            second, draw = int(time.time() + _BURST_IN_S), random.Random(7)
            due_ms = (second * 1000 + draw.randrange(1000) for _ in range(spec.records))
            delaying.write(*where, due_ms, spec.value_bytes)
            wanted = set(range(spec.records))
            found = delaying.arrivals(where.bootstrap, where.target, wanted, second + 1.0)
            service.leave(member)
    seen = {each.number for each in found}
    took_s = max(each.appended_ms for each in found) / 1000 - second
    return {
        **delaying.lateness(found),
        "records_per_s": len(found) / took_s,
        "lost": spec.records - len(seen),
    }


def host(
    bootstrap: str, topic: str, target: str, directory: str, records: int
) -> Mapping[str, float]:
    """Run a service until it has its wheels and these records: a child process."""
    began = time.perf_counter()
    running = delaying.start(bootstrap, topic, target, None, directory)
    delaying.wait_until_begun(running, topic)
    begun_s = time.perf_counter() - began
    taken = framework.watch(running, records, lambda each: each.delayed, delaying.WORKER)
    if taken.finished < records:
        raise RunError(f"{taken.finished:,} of {records:,} records were taken in")
    framework.end(running)
    return {"begun_s": begun_s, "records_per_s": taken.records_per_s, "rss_mb": usage.max_rss_mb()}
