"""Waiting for what another thread or process does: until it is so, with a generous deadline."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.2
_PAUSE_PER_ANSWER = 6
"""What takes long to answer is asked less often, or it takes the processor from what it waits for.
"""


def wait_until(what: Callable[[], object], timeout_s: float = 60.0, why: str = "") -> None:
    """Ask again and again until it is so; AssertionError after the timeout."""
    asked = time.monotonic()
    deadline = asked + timeout_s
    while not what():
        answered = time.monotonic()
        assert answered < deadline, f"not within {timeout_s} s: {why}"
        pause_s = max(_PAUSE_S, _PAUSE_PER_ANSWER * (answered - asked))
        # Processes outside of this one are waited for: there is nothing to be notified by.
        signal.sigtimedwait((), min(pause_s, _LONGEST_PAUSE_S))
        asked = time.monotonic()
