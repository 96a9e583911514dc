"""``delivery: at_most_once``: its rate, and what kills do to it."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, Final

from attrs import asdict, evolve

from benchmarks import children, framework, members
from benchmarks.calls import Handler
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import TopicSpec, Workload
from window_consumer import Record
from window_consumer.cli.logs import set_up
from window_consumer.engine.scheduling.dispatcher import SLICES_PER_SLOT

REBALANCES: Final = 5
_EVERY_S: Final = 6.0
"""The pause between two kills: about the time that the group needs to notice one."""
_END_S: Final = 600.0
_BEFORE: Final = 21
"""So many called records before a lost one say when it was its turn: single ones are called late,
as their key was busy or another member had to take over."""
_WAITING: Final = TopicSpec(records=30_000)
_WAIT_S: Final = 0.01
_deliveries = cycle((("at_most_once", "at_least_once"), ("at_least_once", "at_most_once")))

Place = tuple[int, int]
"""Partition and offset."""


def run_rate(topics: Topics, workload: Workload) -> Run:
    """Handle a topic with both deliveries, in alternating order; then with slow calls."""
    ours, ratio = _compared(topics, workload)
    waiting = evolve(workload, topic=_WAITING, wait_s=_WAIT_S)
    slow, slow_ratio = _compared(topics, waiting)
    return Run(
        ours["records_per_s"],
        ours["cpu_s"],
        ours["max_rss_mb"],
        lost=ours["lost"] + slow["lost"],
        ratios={"at_least_once": ratio, "at_least_once_10ms": slow_ratio},
    )


def _compared(topics: Topics, workload: Workload) -> tuple[dict[str, Any], float]:
    topic = topics.filled(workload.topic, lambda _: None)
    found = {
        delivery: children.run(
            "at_most_once",
            bootstrap=topics.bootstrap,
            topic=topic,
            delivery=delivery,
            workload=workload,
        )
        for delivery in next(_deliveries)
    }
    ours = found["at_most_once"]
    return ours, ours["records_per_s"] / found["at_least_once"]["records_per_s"]


def handle_all(bootstrap: str, topic: str, delivery: str, workload: Workload) -> Any:
    """Handle all records of a topic once: a child process."""
    group = f"wc-bench-{uuid.uuid4().hex[:12]}"
    keys = {"delivery": delivery, "retry": {}}
    app, plan = framework.planned(bootstrap, topic, group, workload, _handler(workload), keys)
    running = app.start_plan(plan, start_timeout=framework.START_S)
    stretch = framework.watch(running, workload.topic.records)
    framework.end(running)
    return asdict(Run(stretch.records_per_s, lost=workload.topic.records - stretch.finished))


def _handler(workload: Workload) -> Handler:
    def wait(_record: Record) -> None:
        time.sleep(workload.wait_s)

    def nothing(_record: Record) -> None:
        """Do nothing."""

    return wait if workload.wait_s else nothing


# ---- kills


def run_kills(topics: Topics, workload: Workload) -> Run:
    """Handle a topic while members are killed and others join and leave; compare the calls."""
    topic = topics.filled(workload.topic, lambda _: None)
    group = f"wc-bench-{uuid.uuid4().hex[:12]}"

    def command(_name: str, journal: Path) -> list[str]:
        return children.command(
            "at_most_once_member",
            bootstrap=topics.bootstrap,
            topic=topic,
            group=group,
            journal=str(journal),
            workload=workload,
        )

    with tempfile.TemporaryDirectory(prefix="wc-bench-") as folder:
        with members.started(command, Path(folder)) as group_members:
            began = time.perf_counter()
            group_members.disturb(workload.kills, REBALANCES, _EVERY_S)
            at_end = lambda: topics.committed_equals_end(topic, group)  # noqa: E731 - one question
            group_members.until(at_end, "the end", _END_S)
            seconds = time.perf_counter() - began
            group_members.leave_all()
        lines = [line for each in group_members.files() for line in each.read_text().splitlines()]
    ends = topics.log_ends(topic)
    topics.forget(group)
    kills = sorted(each.time for each in group_members.killed)
    return evolve(judged(ends, lines, kills), records_per_s=workload.topic.records / seconds)


def judged(ends: Mapping[int, int], lines: Iterable[str], kills: Sequence[float]) -> Run:
    """Count the records that were called twice, and those that each kill lost.

    ``lines`` have partition, offset and time of each call. A lost record counts for the first kill
    after the calls of its predecessors.
    """
    calls: Counter[Place] = Counter()
    times: dict[Place, float] = {}
    for line in lines:
        numbers = line.split()
        place = int(numbers[0]), int(numbers[1])
        calls[place] += 1
        times[place] = float(numbers[2])
    lost: Counter[int] = Counter()
    for partition, end in ends.items():
        before: deque[float] = deque(maxlen=_BEFORE)
        for offset in range(end):
            at = times.get((partition, offset))
            if at is None:
                lost[bisect_left(kills, median(before or [0.0]))] += 1
            else:
                before.append(at)
    notes = {
        "twice": float(calls.total() - len(calls)),
        "lost_per_kill": float(max(lost.values(), default=0)),
        "lost_in_all": float(lost.total()),
        "lost_without_kill": float(lost[len(kills)]),
    }
    return Run(0.0, notes=notes)


def most_lost(workload: Workload) -> int:
    """Return how many records a kill may lose: those running in slots or queued for them."""
    return workload.slots * SLICES_PER_SLOT


def run_member(
    bootstrap: str, topic: str, group: str, journal: str, workload: Workload
) -> dict[str, Any]:
    """Run a worker that records its calls until it is killed: a child process."""
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def handle(record: Record) -> None:
        line = f"{record.partition} {record.offset} {time.monotonic()}\n"
        os.write(file, line.encode())
        time.sleep(workload.wait_s)

    keys = {"delivery": "at_most_once", "retry": {}}
    app, plan = framework.planned(bootstrap, topic, group, workload, handle, keys)
    set_up("text", "error")
    return members.serve(app.start_plan(plan, start_timeout=framework.START_S))


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"amo": run_rate, "amo-kills": run_kills}
