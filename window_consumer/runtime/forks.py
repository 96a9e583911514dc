"""What a handler forks within a child process: it is no slot, and says nothing for one.

It has the child's pipes and the memory that it shares with the parent. Left alone, one that comes
back from the handler would go on with the slot's records, beside the slot.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

came_back: Final[list[int]] = []
"""Holds the id of a process that a handler has forked; empty in a slot."""


def keep_apart(fds: Sequence[int], then: Callable[[], None]) -> None:
    """From now on let what is forked here have nothing of these files; it calls ``then`` first."""

    def apart() -> None:
        came_back.append(os.getpid())
        then()
        # Not closed: the numbers would be given to files that the process opens next.
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in fds:
            os.dup2(nothing, fd, inheritable=False)
        os.close(nothing)

    os.register_at_fork(after_in_child=apart)


def end() -> NoReturn:
    """End a process that has come back from the handler that forked it."""
    # No buffers are flushed: what is in them is the slot's.
    text = f"the process {came_back[-1]}, which a handler has forked, came back from it: it ends\n"
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode())
    os._exit(1)
