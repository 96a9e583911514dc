"""What a process has used of the machine."""

from __future__ import annotations

import os
import resource
from pathlib import Path


def cpu_s() -> float:
    """Processor time of this process and its ended children, in user and system mode."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def max_rss_mb() -> float:
    """The most memory that this process has had resident, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rss_bytes() -> int:
    """The memory that this process has resident now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
