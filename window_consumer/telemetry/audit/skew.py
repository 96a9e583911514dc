"""Whether the clock of a partition's producers and ours agree, from what cannot be otherwise.

A record that came into the log after we had heard how long the log was is younger than that
news. Where its timestamp says that it is much older, or that it is yet to come, the clocks differ,
and no latency can be told: it would look like lag, or like none.
"""

from __future__ import annotations

from typing import Final

from window_consumer.model.record import Message

TOLERANCE_MS: Final = 60_000
"""What batching, retries of the producer and old news of the log's end may make of it."""


class SkewWatch:
    """Of one assignment of one partition. Owner: poll thread."""

    def __init__(self, now: float):
        self.is_skewed = False
        self._log_end: int | None = None
        self._since = now
        """Since when the log was known to end there."""

    def look(self, log_end: int | None, last: Message, now: float, wall_ms: int) -> None:
        """Look at the last of the records that have come; ``log_end`` is what was heard before."""
        known, since = self._log_end, self._since
        if log_end is not None and log_end != known:
            self._log_end, self._since = log_end, now
        if known is None or last.offset() < known:
            return
        kind, milliseconds = last.timestamp()
        if kind != 1 or milliseconds <= 0:
            return
        most_ms = (now - since) * 1000 + TOLERANCE_MS
        age_ms = wall_ms - milliseconds
        self.is_skewed = age_ms > most_ms
