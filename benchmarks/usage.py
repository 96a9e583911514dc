"""A process's use of the machine."""

from __future__ import annotations

import os
import resource
import threading
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_CHECK_S: Final = 0.2


def cpu_s() -> float:
    """Return the processor time of this process and its ended children, user and system."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def max_rss_mb() -> float:
    """Return the peak resident memory of this process, in MiB.

    ``ru_maxrss`` is at least that of the process that has started this one.
    """
    return peak_rss_mb(os.getpid())


def peak_rss_mb(process: int) -> float:
    """Return the peak resident memory of a process that runs, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def rss_bytes() -> int:
    """Return the present resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """The peak resident memory of this process's descendants together.

    A thread checks five times a second. A page that processes share counts once (Linux'
    proportional set size). A value seen at only one check does not count: for a moment, a process
    that Java starts seems to have all of Java's memory. Processes that were running before, such as
    a broker, are excluded.
    """

    def __init__(self) -> None:
        self.memory_mb = 0.0
        self._before = set(_below(os.getpid()))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        before = 0.0
        while not self._ended.wait(_CHECK_S):
            now = sum(
                _resident_mb(each) for each in _below(os.getpid()) if each not in self._before
            )
            self.memory_mb = max(self.memory_mb, min(now, before))
            before = now


def _below(root: int) -> list[int]:
    """Return the descendants of a process."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
        children[parent].append(int(stat.parent.name))
    found, todo = [], [root]
    while todo:
        below = children[todo.pop()]
        found += below
        todo += below
    return found


def _resident_mb(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0  # it has ended meanwhile
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
