"""A million records that wait for hours: the memory that they take, and a restart among them."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks import children, delaying, members
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import Workload
from window_consumer.delay.config import DelayConfig
from window_consumer.model.errors import BrokerUnavailableError

_NEAREST_S: Final = 120.0
"""All records are in the levels before the first one is due."""
_FARTHEST_S: Final = 7200.0
_MOVED_S: Final = 900.0
_STOPPED_S: Final = 5.0
_WATCHED_S: Final = 45.0
"""After a restart, records that fell due in the meantime must be delivered."""

_MEMORY_MB: Final = DelayConfig().worker.memory / 2**20


def run_pending(topics: Topics, workload: Workload) -> Run:
    """Let records wait, restart the service, and read what is due."""
    spec = workload.topic

    def command(_name: str, _file: Path) -> list[str]:
        return children.command("delay_member", **where._asdict(), levels=None)

    with (
        delaying.service_topics(topics) as where,
        tempfile.TemporaryDirectory(prefix="wc-bench-") as folder,
        members.started(command, Path(folder)) as service,
    ):
        first, begun_s, draw = service.join(), time.time(), random.Random(7)
        due_ms = [
            int((begun_s + draw.uniform(_NEAREST_S, _FARTHEST_S)) * 1000)
            for _ in range(spec.records)
        ]
        delaying.write(*where, due_ms, spec.value_bytes)
        service.until(lambda: _is_moved(topics, where.topic), "all are in the levels", _MOVED_S)
        moved_s = time.time() - begun_s
        time.sleep(max(0.0, begun_s + _NEAREST_S + _STOPPED_S - time.time()))
        peaks_mb = [service.peak_rss_mb(first)]
        service.leave(first)
        time.sleep(_STOPPED_S)
        restarted_ms = time.time() * 1000
        second = service.join()
        ends_ms = restarted_ms + _WATCHED_S * 1000
        wanted = {number for number, each in enumerate(due_ms) if each <= ends_ms}
        found = delaying.arrivals(where.bootstrap, where.target, wanted, ends_ms / 1000)
        peaks_mb.append(service.peak_rss_mb(second))
        service.leave(second)
    after_ms = [each.appended_ms for each in found if each.appended_ms >= restarted_ms]
    seen = {each.number for each in found}
    return Run(
        spec.records / moved_s,
        max_rss_mb=max(peaks_mb),
        lost=len(wanted - seen),
        notes={
            "rss_beyond_memory_mb": max(peaks_mb) - _MEMORY_MB,
            "first_delivery_s": (min(after_ms) - restarted_ms) / 1000,
            "twice": float(len(found) - len(seen)),
            "early": delaying.lateness(found)["early"],
        },
    )


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"delay-pending": run_pending}


def _is_moved(topics: Topics, topic: str) -> bool:
    """Return whether no record is left in the entry topic."""
    try:
        return topics.committed_equals_end(topic, topic)
    except BrokerUnavailableError:
        return False  # the group has no coordinator yet
