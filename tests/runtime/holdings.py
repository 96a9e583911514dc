"""What a process holds: to find what something that is over has left behind."""

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
    """By what they are, so that a number that is used again is something else."""
    threads: int

    @classmethod
    def now(cls) -> Holdings:
        """Return what there is."""
        return cls(frozenset(_files()), threading.active_count())

    def left(self) -> list[str]:
        """Return what has come since and does not go.

        Clients of Kafka that other tests have left behind connect again and again, with a socket
        and a pipe each time: those go by themselves.
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
