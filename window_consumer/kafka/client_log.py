"""Passes librdkafka's own log lines to logging, and never raises."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

from confluent_kafka import KafkaException

from window_consumer.model.log_events import LogEvent

Mask = Callable[[str], str]

QUIET_S = 10.0
"""At most one line of each kind in this time. Without a broker the client writes twenty a second.
"""

_MAX_KINDS = 1000
_VARIES = re.compile(r"after \d+ms|, \d+ identical error\(s\) suppressed")


class ClientLog:
    """The logger that the client library gets.

    It is called from within the client: an exception (of a user's logging filter, for example)
    would destroy the batch of records being returned. So exceptions end here, on stderr. Any thread
    may call; at worst, a line that two threads write at once appears twice.

    A KafkaException belongs to the client. It runs its callbacks while an exception is pending, and
    its next check for an exception finds it. It is raised again; otherwise the call would fail
    without a reason.
    """

    def __init__(
        self, logger: logging.Logger, mask: Mask = str, now: Callable[[], float] = monotonic
    ):
        self._logger = logger
        self._mask = mask
        self._now = now
        self._kinds: dict[str, tuple[float, int]] = {}
        self.lines = 0
        """Number of lines that the client has written, suppressed ones included."""

    def log(
        self,
        level: int,
        message: str,
        *args: Any,
        event: LogEvent = LogEvent.CLIENT_LOGGED,
        **_: Any,
    ) -> None:
        """Pass a line on; the client's levels are logging's."""
        self.lines += 1
        try:
            text = message % args if args else message
            suppressed = self._suppressed(_VARIES.sub("", text))
            if suppressed is not None:
                more = f" ({suppressed} more since the last line)" if suppressed else ""
                self._logger.log(level, "%s", self._mask(text + more), extra={"event": event})
        except KafkaException:
            raise
        except Exception as exception:
            sys.stderr.write(f"window_consumer: a log line was lost: {exception!r}\n")

    def info(self, event: LogEvent, message: str, *args: Any) -> None:
        """Write a line of our own."""
        self.log(logging.INFO, message, *args, event=event)

    def _suppressed(self, kind: str) -> int | None:
        """Return how many lines were suppressed since the last one; None suppresses this one."""
        now = self._now()
        said_at, suppressed = self._kinds.get(kind, (float("-inf"), 0))
        if now - said_at < QUIET_S:
            self._kinds[kind] = (said_at, suppressed + 1)
            return None
        if len(self._kinds) >= _MAX_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (now, 0)
        return suppressed
