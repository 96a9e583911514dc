"""Kills and rebalances with delayed records: none is lost, and none is early."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks import children, delaying, members
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import Workload

REBALANCES: Final = 2
_EVERY_S: Final = 9.0
"""The pause between two kills: the group notices one after 6 s."""
_SENT_S: Final = 45.0
"""Records are sent for this long, while members are killed."""
_FARTHEST_S: Final = 60.0
"""Each is due within this many seconds of its sending."""
_CANCELLED_ONE_IN: Final = 5


def run_kills(topics: Topics, workload: Workload) -> Run:
    """Send records, and read what is delivered, while the members of the service are killed."""
    spec = workload.topic
    with (
        delaying.service_topics(topics) as where,
        tempfile.TemporaryDirectory(prefix="wc-bench-") as folder,
        delaying.wheel_directory(workload) as wheels,
        members.started(
            _command(where, wheels, exact=workload.exact), Path(folder)
        ) as group_members,
        ThreadPoolExecutor(1) as pool,
    ):
        due_ms = delaying.sent_evenly(spec.records, _SENT_S, _FARTHEST_S)
        sent = pool.submit(
            delaying.write, *where, due_ms, spec.value_bytes, cancel_one_in=_CANCELLED_ONE_IN
        )
        group_members.disturb(workload.kills, REBALANCES, _EVERY_S)
        cancelled = sent.result()
        last_s = time.time() + _FARTHEST_S
        wanted = set(range(spec.records)) - cancelled.asked
        found = delaying.arrivals(where.bootstrap, where.target, wanted, last_s)
        group_members.leave_all()
    seen = {each.number for each in found}
    return Run(
        len(seen) / (_SENT_S + _FARTHEST_S),
        lost=len(wanted - seen),
        notes={
            "cancelled_delivered": float(len(cancelled.in_time & seen)),
            "twice": float(len(found) - len(seen)),
            **delaying.lateness(found),
        },
    )


def _command(
    where: delaying.Place, wheels: str | None, *, exact: bool
) -> Callable[[str, Path], Sequence[str]]:
    """Return the command that starts a member, which finds no files of others."""

    def command(name: str, _file: Path) -> Sequence[str]:
        directory = wheels and f"{wheels}/{name}"
        return children.command(
            "delay_member",
            **where._asdict(),
            levels=delaying.LEVELS,
            directory=directory,
            exact_as=name if exact else "",
        )

    return command


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"delay-kills": run_kills}
