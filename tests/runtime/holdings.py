"""Resources that a process holds, to find leaks."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from time import perf_counter

from attrs import frozen

_DEADLINE_S = 60.0


@frozen
class Holdings:
    """The open files, pipes and sockets of this process, and its threads."""

    files: frozenset[str]
    """Identified by their targets, so that a reused number counts as another resource."""
    threads: int

    @classmethod
    def now(cls) -> Holdings:
        """Return the current resources."""
        return cls(frozenset(_files()), threading.active_count())

    def left(self) -> list[str]:
        """Return resources that have appeared since and do not go away.

        Clients of Kafka that other tests left behind reconnect again and again, with a socket and a
        pipe each time: those go away by themselves.
        """
        more = _files() - self.files
        deadline = perf_counter() + _DEADLINE_S
        pause = threading.Event()
        while more and perf_counter() < deadline:
            pause.wait(0.002)
            more &= _files()
        threads = max(0, threading.active_count() - self.threads)
        return [*sorted(more), *["a thread"] * threads]


def _files() -> set[str]:
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, like what lists them
            found.add(str(each.readlink()))
    return found
