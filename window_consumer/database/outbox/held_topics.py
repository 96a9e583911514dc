"""Topics that accept no rows at the moment: their rows wait, and the others are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import define, field

from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0

_log = own_logger()


@define
class GrowingPause:
    """A pause that doubles each time."""

    first_s: float = FIRST_PAUSE_S
    longest_s: float = LONGEST_PAUSE_S
    length_s: float = 0.0
    until: float = 0.0

    def extend(self, now: float) -> None:
        """Begin the next pause."""
        self.length_s = min(max(2 * self.length_s, self.first_s), self.longest_s)
        self.until = now + self.length_s


@define
class HeldTopics:
    """Topics without acknowledgements, each with its pause. Owner: the relay's thread."""

    _first_s: float
    _longest_s: float
    _pauses: dict[str, GrowingPause] = field(factory=dict, init=False)
    trouble: str | None = field(default=None, init=False)
    """Why the last batch left rows without an acknowledgement. Any thread may read it."""

    def names(self, now: float) -> set[str]:
        """Return the topics whose pauses are not over."""
        return {topic for topic, pause in self._pauses.items() if pause.until > now}

    def pauses_s(self, now: float) -> list[float]:
        """Return how long these pauses still take."""
        return [pause.until - now for pause in self._pauses.values() if pause.until > now]

    def record(self, answering: set[str], silent: Mapping[str, str], now: float) -> None:
        """Record which topics of a batch are available, and why others are not."""
        for topic in answering:
            self._pauses.pop(topic, None)
        for topic, why in silent.items():
            pause = self._pauses.setdefault(topic, GrowingPause(self._first_s, self._longest_s))
            pause.extend(now)
            _log.warning(
                "outbox: topic %s accepts no rows, retrying in %g s: %s",
                topic,
                pause.length_s,
                why,
                extra={"event": LogEvent.OUTBOX_TOPIC_SILENT},
            )
        self.trouble = next(iter(silent.values()), None)
