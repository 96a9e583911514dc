"""Loggers that no application can break, and trouble that is reported once.

An application's filters and handlers run on the thread that writes the line. They must not end a
poll thread, a supervisor or a keeper of a child process: the line is lost, and stderr says so.
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
"""So often at most stderr says that lines are lost."""


class GuardedLogger(logging.Logger):
    """Writes to another logger, and never raises. Any thread may call."""

    def __init__(self, behind: logging.Logger):
        super().__init__(behind.name)
        self._behind = behind

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is logging's
        """Tell whether the other logger writes lines of this level."""
        return self._behind.isEnabledFor(level)

    def getEffectiveLevel(self) -> int:  # noqa: N802 - as above
        """Return the other logger's level."""
        return self._behind.getEffectiveLevel()

    def getChild(self, suffix: str) -> GuardedLogger:  # noqa: N802 - as above
        """Return a guarded child of the other logger."""
        return GuardedLogger(self._behind.getChild(suffix))

    def handle(self, record: logging.LogRecord) -> None:
        """Let the other logger handle a line."""
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
            # A record factory of the application's.
            _lost(error)


def own_logger(name: str = "window_consumer") -> logging.Logger:
    """Return the logger of this name, guarded."""
    return GuardedLogger(logging.getLogger(name))


def with_line(logger: logging.Logger, record: logging.LogRecord) -> None:
    """Let a logger handle a line; nothing is raised."""
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
    """One thing that may go wrong again and again. Owner: one thread.

    While it lasts it is logged again every ``again_s``.
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
        """It was said to have begun, and not that it is over."""
        return self._said is not None

    @property
    def seconds(self) -> float:
        """For how long it has lasted, 0 where all is well. Any thread may ask."""
        return 0.0 if self._said is None else max(0.0, monotonic() - self._since)

    def begins(self, event: LogEvent, text: str) -> None:
        """Say what is wrong, unless that was said already."""
        now = monotonic()
        if self._said is None:
            self._since = now
        if self._said is None or now - self._said_at >= self._again_s:
            self._said_at = now
            self._logger.warning("%s", text, extra={"event": event})
        self._said = text

    def ends(self) -> None:
        """Say that all is well, where something else was said before."""
        if self._said is not None:
            self._said = None
            event = self._end
            self._logger.info("%s", self._over, extra={"event": event})
