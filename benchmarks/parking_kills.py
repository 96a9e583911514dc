"""Kills and rebalances with parked keys: their order stays, and nothing is lost."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from benchmarks import children, framework, members
from benchmarks.parking import KeyFailsError, fails, retry
from benchmarks.records import records
from benchmarks.results import Run
from benchmarks.topics import Say, Topics
from benchmarks.workloads import PARTITIONS, TopicSpec, Workload
from window_consumer import Record
from window_consumer.cli.logs import set_up
from window_consumer.testing.events import (
    Ended,
    Event,
    Produced,
    Result,
    Started,
    from_line,
    to_line,
)
from window_consumer.testing.events import in_order as by_time
from window_consumer.testing.guarantees import NothingLost, OneAtATimePerKey, OrderPerKey, check

FAILING_S: Final = 60.0
"""Calls for records of a failing key fail for this long."""
LEVELS: Final = ("5s", "10s", "20s", "30s")
"""Together longer than keys fail."""
REBALANCES: Final = 5
_EVERY_S: Final = 9.0
"""The pause between two kills: the group notices one after 6 s. At the last one no key fails."""
_SLOTS: Final = 16
"""The topic lasts for about as long as keys fail."""
_SAID: Final = 5
_END_S: Final = 150.0
"""After the last kill the ladder is empty within its longest level, unless the machine is busy."""


def run_kills(topics: Topics, workload: Workload, topic: str, say: Say) -> Run:
    """Handle a filled topic while its members are killed and others join and leave."""
    group = f"wc-bench-{uuid.uuid4().hex[:12]}"
    spec, worker = workload.topic, evolve(workload, slots=_SLOTS)
    failing_until = time.monotonic() + FAILING_S

    def command(name: str, journal: Path) -> list[str]:
        return children.command(
            "park_member",
            bootstrap=topics.bootstrap,
            topic=topic,
            group=group,
            workload=worker,
            name=name,
            journal=str(journal),
            failing_until=failing_until,
        )

    with tempfile.TemporaryDirectory(prefix="wc-bench-") as folder:
        with members.started(command, Path(folder)) as group_members:
            began = time.perf_counter()
            group_members.disturb(workload.kills, REBALANCES, _EVERY_S)
            group_members.until(_is_finished(topics, topic, group), "the end", _END_S)
            seconds = time.perf_counter() - began
            group_members.leave_all()
        lines = (line for each in group_members.files() for line in _lines(each))
        events = [*group_members.killed, *map(from_line, lines)]
    topics.delete_copies(group)
    topics.forget(group)
    found = judged(produced(topic, spec), events, say)
    return evolve(found, records_per_s=spec.records / seconds)


def run_member(  # noqa: PLR0913 - a run's where and what
    bootstrap: str,
    topic: str,
    group: str,
    workload: Workload,
    name: str,
    journal: str,
    failing_until: float,
) -> dict[str, Any]:
    """Run a worker that records its calls until it is killed: a child process.

    ``failing_until`` is in seconds of the machine's monotonic clock.
    """
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(event: Event) -> None:
        os.write(file, f"{to_line(event)}\n".encode())

    def handle(record: Record) -> None:
        key = record.key or b""
        place = (name, *record.origin, key.decode())
        note(Started(*place, time=time.monotonic(), attempt=record.attempt))
        time.sleep(workload.wait_s)
        failed = fails(key) and time.monotonic() < failing_until
        result: Result = "failed" if failed else "done"
        note(Ended(*place, time=time.monotonic(), result=result, attempt=record.attempt))
        if failed:
            raise KeyFailsError

    keys = {"retry": retry("park", LEVELS)}
    app, plan = framework.planned(bootstrap, topic, group, workload, handle, keys)
    set_up("text", "error")  # thousands of calls fail on purpose
    return members.serve(app.start_plan(plan, start_timeout=framework.START_S))


def produced(topic: str, spec: TopicSpec) -> Iterator[Produced]:
    """Yield the records of a filled topic."""
    ends = [0] * PARTITIONS
    for number, (partition, key, _) in enumerate(records(spec)):
        yield Produced(topic, partition, ends[partition], (key or b"").decode(), str(number))
        ends[partition] += 1


def judged(produced: Iterable[Produced], events: Iterable[Event], say: Say) -> Run:
    """Compare the calls of all members with what was produced; name the first violations.

    A record that is handled again after a kill is a duplicate and breaks no order.
    """
    history = [*produced, *by_time(events)]
    lost = check(history, NothingLost())
    violations = check(history, OrderPerKey(), OneAtATimePerKey())
    for each in (*lost[:_SAID], *violations[:_SAID]):
        say(each)
    done = Counter(
        (each.partition, each.offset)
        for each in history
        if isinstance(each, Ended) and each.result == "done"
    )
    repeated = done.total() - len(done)
    return Run(0.0, lost=len(lost), order_violations=len(violations), duplicates=repeated)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def _is_finished(topics: Topics, topic: str, group: str) -> Callable[[], bool]:
    """Return whether the group has committed all of its topics to their ends, twice in a row."""
    before = False

    def look() -> bool:
        nonlocal before
        now = all(topics.committed_equals_end(each, group) for each in topics.read_by(topic, group))
        is_finished, before = now and before, now
        return is_finished

    return look
