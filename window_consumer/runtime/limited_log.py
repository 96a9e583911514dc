"""Log lines of one worker that repeat at most every ten seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable

from attrs import define

from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import TopicPartition

QUIET_S = 10.0
"""The period for one traceback per kind of error and one line per kind of trouble."""

_LINES_OF_A_STORM = 3

Now = Callable[[], float]


@define
class _Kind:
    logged_at: float
    suppressed: int = 0


class Repetition:
    """Decides which of many equal events get a line. Owner: one thread."""

    def __init__(self, now: Now):
        self._now = now
        self._kinds: dict[str, _Kind] = {}

    def count_suppressed(self, kind: str) -> int | None:
        """Return how many lines were suppressed since the last; None suppresses this one, too."""
        now = self._now()
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) > 1000:
                self._kinds.clear()
            self._kinds[kind] = _Kind(now)
            return 0
        if now - known.logged_at < QUIET_S:
            known.suppressed += 1
            return None
        suppressed, known.suppressed, known.logged_at = known.suppressed, 0, now
        return suppressed


class LogStorm:
    """Calls that hang at one code position. Owner: one thread."""

    def __init__(self, now: Now):
        self._now = now
        self._since = float("-inf")
        self._lines = 0
        self.first = ""
        """The first record with a line."""
        self.suppressed: list[str] = []
        """The records without a line."""

    def is_worth_a_line(self, place: str) -> bool:
        """Return whether a call gets its own line: the first few do, then none for ten seconds."""
        now = self._now()
        if now - self._since >= QUIET_S:
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines > _LINES_OF_A_STORM:
            self.suppressed.append(place)
            return False
        self.first = self.first or place
        return True

    def text(self) -> str:
        """Return how many calls got no line, and name some of them."""
        shown = ", ".join(self.suppressed[:8])
        more = ", ..." if len(self.suppressed) > 8 else ""
        return f"{len(self.suppressed)} more calls ({shown}{more})"


class LimitedLog:
    """Writes lines that begin with the worker's name. Owner: one thread."""

    def __init__(self, worker: str, logger: logging.Logger, now: Now):
        self.worker = worker
        self.logger = logger
        self.now = now
        self.repetition = Repetition(now)

    def info(self, event: LogEvent, text: str, **data: object) -> None:
        """Write a line that is never suppressed; ``data`` are structured fields of it."""
        self.logger.info("%s: %s", self.worker, text, extra=self.fields(event, **data))

    def warn(self, event: LogEvent, text: str, **data: object) -> None:
        """Write a warning; the same one at most every ten seconds."""
        self.limited(logging.WARNING, event, text, text, **data)

    def error(self, event: LogEvent, text: str, **data: object) -> None:
        """Write an error line."""
        self.logger.error("%s: %s", self.worker, text, extra=self.fields(event, **data))

    def fields(self, event: LogEvent, **data: object) -> dict[str, object]:
        """Return the structured fields of a line."""
        return {"event": event, "worker": self.worker, **data}

    def place(
        self, event: LogEvent, name: TopicPartition, offset: int, attempt: int | None = None
    ) -> dict[str, object]:
        """Return the same fields that identify a record in handlers' log lines."""
        return self.fields(
            event, topic=name.topic, partition=name.partition, offset=offset, attempt=attempt
        )

    def limited(self, level: int, event: LogEvent, text: str, kind: str, **data: object) -> None:
        """Write a line; the same kind at most every ten seconds."""
        suppressed = self.repetition.count_suppressed(kind)
        if suppressed is not None:
            more = f" ({suppressed} more since the last line)" if suppressed else ""
            self.logger.log(
                level, "%s: %s%s", self.worker, text, more, extra=self.fields(event, **data)
            )
