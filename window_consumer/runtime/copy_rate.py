"""Limits the rate of commands that copy records."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from window_consumer.model.protocols import Clock

_CATCH_UP_S = 1.0
"""A run that falls behind its rate catches up on at most this much time."""

_CHECK_S = 0.2
"""The longest time until a stop request is noticed."""


@define
class CopyRate:
    """The most records per second; None for no limit. Owner: one thread."""

    rate: float | None
    clock: Clock
    _due: float | None = field(init=False, default=None)
    """When the next record is due; None before the first one, so that the time to connect is not
    caught up on."""

    def share(self, seconds: float, most: int) -> int:
        """Return how many records are due in a period, at least one and at most ``most``."""
        return most if self.rate is None else max(1, min(most, round(self.rate * seconds)))

    def wait(self, done: int, stop_asked: Callable[[], bool]) -> None:
        """Count further records, and wait until the next one is due; return early for a stop."""
        if self.rate is None:
            return
        now = self.clock.now()
        began = now if self._due is None else max(self._due, now - _CATCH_UP_S)
        self._due = began + done / self.rate
        while (left := self._due - self.clock.now()) > 0 and not stop_asked():
            self.clock.sleep(min(_CHECK_S, left))
