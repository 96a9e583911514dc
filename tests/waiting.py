"""Waiting for what another thread or process does: until it is so, with a generous deadline."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

_PAUSE_S = 0.01


def wait_until(what: Callable[[], object], timeout_s: float = 60.0, why: str = "") -> None:
    """Ask again and again until it is so; AssertionError after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {why}"
        # Processes outside of this one are waited for: there is nothing to be notified by.
        signal.sigtimedwait((), _PAUSE_S)
