"""The clock of this process: everything else gets it, and tests get one that they move by hand."""

from __future__ import annotations

from time import perf_counter, sleep, time_ns


class SystemClock:
    """The clock of this process."""

    def now(self) -> float:
        """Return seconds of the performance counter."""
        return perf_counter()

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` of time pass."""
        sleep(seconds)

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time_ns() // 1_000_000
