"""A clock that only tests advance."""

from __future__ import annotations


class ManualClock:
    """A Clock that only ``advance`` moves. Owner: one thread."""

    __slots__ = ("_now", "_wall_ms")

    def __init__(self, now: float = 0.0, wall_ms: int = 1_700_000_000_000):
        self._now = now
        self._wall_ms = float(wall_ms)

    def now(self) -> float:
        """Return the seconds since the clock's origin."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance the clock at once."""
        self.advance(seconds)

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return round(self._wall_ms)

    def advance(self, seconds: float) -> None:
        """Advance the clock; ``ValueError`` for a negative number of seconds."""
        if seconds < 0:
            msg = f"time does not go back, got {seconds} s"
            raise ValueError(msg)
        self._now += seconds
        self._wall_ms += seconds * 1000

    def set_wall(self, milliseconds: int) -> None:
        """Set the wall clock, as when a system clock is corrected."""
        self._wall_ms = float(milliseconds)
