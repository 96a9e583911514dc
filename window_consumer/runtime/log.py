"""Loggers that applications cannot break, and logging of lasting trouble.

An application's filters and handlers run on the thread that writes the line. They must not end a
poll thread, a supervisor or the thread of a child process. So a failing line is lost, and stderr
reports that.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from window_consumer.model.log_events import LogEvent

QUIET_S: Final = 10.0
"""The shortest time between two reports of lost lines on stderr."""


class GuardedLogger(logging.Logger):
    """Forwards to another logger and never raises. Any thread may call it."""

    def __init__(self, behind: logging.Logger):
        super().__init__(behind.name)
        self._behind = behind

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is logging's
        """Return whether the other logger writes lines of this level."""
        return self._behind.isEnabledFor(level)

    def getEffectiveLevel(self) -> int:  # noqa: N802 - as above
        """Return the other logger's level."""
        return self._behind.getEffectiveLevel()

    def getChild(self, suffix: str) -> GuardedLogger:  # noqa: N802 - as above
        """Return a guarded child of the other logger."""
        return GuardedLogger(self._behind.getChild(suffix))

    def handle(self, record: logging.LogRecord) -> None:
        """Pass a line to the other logger."""
        with_line(self._behind, record)

    def _log(  # noqa: PLR0913 - as logging has it
        self,
        level: int,
        msg: object,
        args: tuple[object, ...] | Mapping[str, object],
        exc_info: Any = None,
        extra: Mapping[str, object] | None = None,
        stack_info: bool = False,  # noqa: FBT001, FBT002 - as logging calls it
        stacklevel: int = 1,
    ) -> None:
        try:
            super()._log(level, msg, args, exc_info, extra, stack_info, stacklevel + 1)
        except Exception as error:
            # The application may have replaced the record factory.
            _lost(error)


def own_logger(name: str = "window_consumer") -> logging.Logger:
    """Return the guarded logger of this name."""
    return GuardedLogger(logging.getLogger(name))


def with_line(logger: logging.Logger, record: logging.LogRecord) -> None:
    """Let a logger handle a line; never raise."""
    try:
        logger.handle(record)
    except Exception as error:
        _lost(error)


_said_at = float("-inf")


def _lost(error: Exception) -> None:
    global _said_at  # noqa: PLW0603 - one stderr a process
    now = monotonic()
    if now - _said_at < QUIET_S:
        return
    _said_at = now
    with suppress(Exception):
        kind = type(error)
        sys.stderr.write(
            "window_consumer: log lines are lost: a filter, handler or record factory of logging"
            f" raised {kind.__module__}.{kind.__qualname__}\n"
        )


class Trouble:
    """One kind of recurring failure. Owner: one thread.

    While it lasts, it is logged again every ``again_s``.
    """

    def __init__(
        self, logger: logging.Logger, end: LogEvent, over: str, again_s: float = float("inf")
    ):
        self._logger = logger
        self._end = end
        self._over = over
        self._again_s = again_s
        self._said: str | None = None
        self._said_at = self._since = 0.0

    @property
    def lasts(self) -> bool:
        """Whether it has begun and not ended."""
        return self._said is not None

    @property
    def seconds(self) -> float:
        """How long it has lasted, 0 without a failure. Any thread may ask."""
        return 0.0 if self._said is None else max(0.0, monotonic() - self._since)

    def begins(self, event: LogEvent, text: str) -> None:
        """Log the failure, unless it is already logged."""
        now = monotonic()
        if self._said is None:
            self._since = now
        if self._said is None or now - self._said_at >= self._again_s:
            self._said_at = now
            self._logger.warning("%s", text, extra={"event": event})
        self._said = text

    def ends(self) -> None:
        """Log the recovery, if a failure was logged."""
        if self._said is not None:
            self._said = None
            event = self._end
            self._logger.info("%s", self._over, extra={"event": event})
