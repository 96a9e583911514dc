"""The bounds of a whole process, which its container must provide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from window_consumer.app.limits import WorkerBounds, grace_period_s
from window_consumer.config.units import format_size

BASE_BYTES: Final = 64 * 2**20
"""An idle process with Kafka's clients (measured: 57 MiB resident)."""

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")
_NO_LIMIT: Final = 2**60
"""Cgroups of version 1 report nearly 2**63 for no limit."""


@frozen
class ProcessBounds:
    """The needs of all workers of a process together."""

    termination_grace_period_s: int
    """Kubernetes' terminationGracePeriodSeconds: an earlier kill makes records run again."""
    resident_bytes: int
    """The upper bound, excluding what the application itself loads."""
    container_limit_bytes: int | None
    """The container's memory limit, None without one."""
    processes: int = 1
    """The number of replicas, as with ``run --processes``."""

    @property
    def warnings(self) -> Iterator[str]:
        """Yield limits that are too low."""
        limit = self.container_limit_bytes
        if limit is not None and self.resident_bytes > limit:
            yield (
                f"the workers can need {_size(self.resident_bytes)} together, but the container's"
                f" limit is {_size(limit)}: it would be killed; lower workers.*.memory, or raise"
                " the limit"
            )


def process_bounds_of(
    workers: Sequence[WorkerBounds], limit: int | None, processes: int = 1
) -> ProcessBounds:
    """Return the needs of all workers together; ``limit`` is the container's.

    Several ``processes`` need one more, their supervisor.
    """
    longest = max((each.stop_s for each in workers), default=0.0)
    needed = sum(each.resident_bytes + each.children_bytes for each in workers)
    resident = processes * (BASE_BYTES + needed) + (BASE_BYTES if processes > 1 else 0)
    return ProcessBounds(grace_period_s(longest), resident, limit, processes)


def container_limit(root: Path = _CGROUPS, own: Path = _OWN_CGROUP) -> int | None:
    """Return the memory limit of this process's control group in bytes, None without one.

    Reads cgroups of version 2, including those above, and of version 1.
    """
    limits = []
    for directory in _directories(root, own):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                text = (directory / name).read_text().strip()
            except OSError:
                continue
            if text.isdigit() and int(text) < _NO_LIMIT:
                limits.append(int(text))
    return min(limits, default=None)


def _directories(root: Path, own: Path) -> Iterator[Path]:
    """Yield the directories that may have a limit: this process's group and those above it.

    In a container with its own namespace, the group is the root.
    """
    yield from (root, root / "memory")
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in {"", "memory"}:
            continue
        base = root / controllers
        inside = path.strip("/")
        while inside:
            yield base / inside
            inside = inside.rpartition("/")[0]


def _size(count: int) -> str:
    mebibyte = 2**20
    return format_size(-(-count // mebibyte) * mebibyte)
