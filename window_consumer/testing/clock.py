"""Time that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """A Clock that only ``advance`` moves. Owner: one thread."""

    __slots__ = ("_now", "_wall_ms")

    def __init__(self, now: float = 0.0, wall_ms: int = 1_700_000_000_000):
        self._now = now
        self._wall_ms = float(wall_ms)

    def now(self) -> float:
        """Seconds since the clock's origin."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self.advance(seconds)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return round(self._wall_ms)

    def advance(self, seconds: float) -> None:
        """Let time pass; ``ValueError`` for a negative number of seconds."""
        if seconds < 0:
            msg = f"time does not go back, got {seconds} s"
            raise ValueError(msg)
        self._now += seconds
        self._wall_ms += seconds * 1000

    def set_wall(self, milliseconds: int) -> None:
        """Let the wall clock jump, the way that a corrected system clock does."""
        self._wall_ms = float(milliseconds)
