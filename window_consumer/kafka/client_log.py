"""librdkafka's own log lines, passed on to logging without ever raising."""

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
"""One line of a kind in this time: while a broker is away the client writes twenty a second."""

_MAX_KINDS = 1000
_VARIES = re.compile(r"after \d+ms|, \d+ identical error\(s\) suppressed")


class ClientLog:
    """What the client library gets as its logger.

    It is called from within the client: an exception (of a user's logging filter, say) would
    destroy the batch of records that is being returned, so it ends here, on stderr. Any thread
    may call: at worst a line that two of them write at once appears twice.

    A KafkaException is none of ours: the client goes on with its callbacks while one waits to be
    raised, and whatever next looks for an exception comes across it. It is handed back, or the
    call would fail without telling why.
    """

    def __init__(
        self, logger: logging.Logger, mask: Mask = str, now: Callable[[], float] = monotonic
    ):
        self._logger = logger
        self._mask = mask
        self._now = now
        self._kinds: dict[str, tuple[float, int]] = {}
        self.lines = 0
        """How many lines the client has written, those that were kept quiet included."""

    def log(
        self,
        level: int,
        message: str,
        *args: Any,
        event: LogEvent = LogEvent.CLIENT_LOGGED,
        **_: Any,
    ) -> None:
        """Pass a line on; the client's levels are those of logging."""
        self.lines += 1
        try:
            text = message % args if args else message
            unsaid = self._unsaid(_VARIES.sub("", text))
            if unsaid is not None:
                more = f" ({unsaid} more since the last line)" if unsaid else ""
                self._logger.log(level, "%s", self._mask(text + more), extra={"event": event})
        except KafkaException:
            raise
        except Exception as exception:
            sys.stderr.write(f"window_consumer: a log line was lost: {exception!r}\n")

    def info(self, event: LogEvent, message: str, *args: Any) -> None:
        """Write a line of our own."""
        self.log(logging.INFO, message, *args, event=event)

    def _unsaid(self, kind: str) -> int | None:
        """Return how many lines were kept quiet since the last, None to keep this quiet too."""
        now = self._now()
        said_at, unsaid = self._kinds.get(kind, (float("-inf"), 0))
        if now - said_at < QUIET_S:
            self._kinds[kind] = (said_at, unsaid + 1)
            return None
        if len(self._kinds) >= _MAX_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (now, 0)
        return unsaid
