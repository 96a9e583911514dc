"""Waits until another thread or process has done something, with a generous deadline."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.2
_PAUSE_PER_ANSWER = 6
"""Slow conditions are checked less often, so as not to take the processor from what they wait for.
"""


def wait_until(what: Callable[[], object], timeout_s: float = 60.0, why: str = "") -> None:
    """Check a condition until it holds; raise AssertionError after the timeout."""
    asked = time.monotonic()
    deadline = asked + timeout_s
    while not what():
        answered = time.monotonic()
        assert answered < deadline, f"not within {timeout_s} s: {why}"
        pause_s = max(_PAUSE_S, _PAUSE_PER_ANSWER * (answered - asked))
        # Other processes cannot notify this one, so polling is the only way.
        signal.sigtimedwait((), min(pause_s, _LONGEST_PAUSE_S))
        asked = time.monotonic()
