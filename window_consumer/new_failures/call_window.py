"""Counts calls, and failures by fingerprint, of the last seconds."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from attrs import define, field

PARTS: Final = 12
"""The window moves in steps of a twelfth, so old calls leave at most one step late."""


@define
class _Part:
    begin: float
    calls: int = 0
    failures: Counter[str] = field(factory=Counter)


class CallWindow:
    """The calls of the last ``window_s`` seconds, rounded up to a twelfth. Owner: poll thread."""

    def __init__(self, window_s: float):
        self._step_s = window_s / PARTS
        self._parts: deque[_Part] = deque(maxlen=PARTS + 1)

    def called(self, calls: int, now: float) -> None:
        """Count calls."""
        self._part(now).calls += calls

    def failed(self, fingerprint: str, now: float) -> None:
        """Count a failed call."""
        part = self._part(now)
        part.calls += 1
        part.failures[fingerprint] += 1

    def share(self, fingerprint: str, now: float) -> tuple[int, int]:
        """Return how many calls in the window failed with a fingerprint, and all calls in it."""
        first = now - PARTS * self._step_s
        parts = [each for each in self._parts if each.begin + self._step_s > first]
        failures = sum(each.failures[fingerprint] for each in parts)
        return failures, sum(each.calls for each in parts)

    def _part(self, now: float) -> _Part:
        if not self._parts or now >= self._parts[-1].begin + self._step_s:
            self._parts.append(_Part(now))
        return self._parts[-1]
