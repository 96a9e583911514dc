"""How many processor cores this process may use, which may be fewer than the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path, PurePosixPath
from typing import Final

_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_GROUPS: Final = Path("/sys/fs/cgroup")


def usable_cores(membership: Path = _MEMBERSHIP, groups: Path = _GROUPS) -> int:
    """Return how many cores this process may use, at least 1.

    This is the smaller of its affinity's cores and its control group's processor quota, rounded
    up. A container limited to 1.5 processors has 2, whatever its node has.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min([cores, *(max(1, ceil(quota)) for quota in _quotas(membership, groups))])


def _quotas(membership: Path, groups: Path) -> Iterator[float]:
    """Yield the quotas, in cores, of the control groups of this process."""
    for line in _text(membership).splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            yield from _limits(groups, path, ("cpu.max",))
        elif "cpu" in controllers.split(","):
            yield from _limits(groups / "cpu", path, ("cpu.cfs_quota_us", "cpu.cfs_period_us"))


def _limits(groups: Path, path: str, names: tuple[str, ...]) -> Iterator[float]:
    """Yield the limits of a group and of its parents.

    In a container, its own group may be mounted as the root; missing files mean no limit.
    """
    inner = PurePosixPath(path.lstrip("/"))
    for group in (inner, *inner.parents) if inner.parts else (inner,):
        words = " ".join(_text(groups / group / name) for name in names).split()
        if (
            len(words) == 2 and all(map(str.isdigit, words)) and int(words[1])
        ):  # max and -1: no limit
            yield int(words[0]) / int(words[1])


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
