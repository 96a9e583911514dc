"""What kills and rebalances do to delayed records: none is lost, and none is early."""

from __future__ import annotations

import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks import children, delaying, members
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import Workload

REBALANCES: Final = 2
_EVERY_S: Final = 9.0
"""Between two kills: the group notices one after 6 s."""
_SENT_S: Final = 45.0
"""Records are sent for so long, while members are killed."""
_FARTHEST_S: Final = 60.0
"""Each is due within so many seconds of its sending."""


def run_kills(topics: Topics, workload: Workload) -> Run:
    """Send records, and read what is delivered, while the members of the service are killed."""
    topic, target = (f"wc-bench-{uuid.uuid4().hex[:12]}" for _ in range(2))
    where = {"bootstrap": topics.bootstrap, "topic": topic, "target": target}
    spec = workload.topic
    topics.make(topic)
    topics.make(target, config={"message.timestamp.type": "LogAppendTime"})

    def command(_name: str, _file: Path) -> list[str]:
        return children.command("delay_member", **where)

    with (
        tempfile.TemporaryDirectory(prefix="wc-bench-") as folder,
        members.started(command, Path(folder)) as group_members,
        ThreadPoolExecutor(1) as pool,
    ):
        sent = pool.submit(
            delaying.write, **where, due_ms=_due_ms(spec.records), size=spec.value_bytes
        )
        group_members.disturb(workload.kills, REBALANCES, _EVERY_S)
        sent.result()
        last_s = time.time() + _FARTHEST_S
        late_ms, seen = delaying.arrivals(topics.bootstrap, target, spec.records, last_s)
        group_members.leave_all()
    topics.delete_copies(topic)
    for name in (topic, target):
        topics.delete(name)
    return Run(
        len(seen) / (_SENT_S + _FARTHEST_S),
        lost=spec.records - len(seen),
        notes={"twice": float(len(late_ms) - len(seen)), **delaying.lateness(late_ms)},
    )


def run_member(bootstrap: str, topic: str, target: str) -> dict[str, Any]:
    """Run the service until it is killed: a child process."""
    return members.serve(delaying.start(bootstrap, topic, target))


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"delay-kills": run_kills}


def _due_ms(records: int) -> Iterator[int]:
    """Yield when records are due, one after the other while they are sent."""
    began, draw = time.time(), random.Random(7)
    for number in range(records):
        time.sleep(max(0.0, began + _SENT_S * number / records - time.time()))
        yield int((time.time() + draw.random() * _FARTHEST_S) * 1000)
