"""Log lines of a child process, which the parent logs with their record's fields."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from window_consumer.runtime.context import CROSSED, RecordContext
from window_consumer.runtime.log import with_line


class LogSettings(NamedTuple):
    """The parent's log levels, which spare the child useless lines."""

    levels: Mapping[str, int]
    """Levels by logger; the root logger's name is empty."""
    disabled: int

    @classmethod
    def of_this_process(cls) -> LogSettings:
        """Return the settings of this process, the parent."""
        loggers = logging.Logger.manager.loggerDict.items()
        levels = {name: each.level for name, each in loggers if isinstance(each, logging.Logger)}
        given = {name: level for name, level in levels.items() if level != logging.NOTSET}
        return cls({**given, "": logging.getLogger().level}, logging.root.manager.disable)


class LogLine(NamedTuple):
    """A log record in its pickled form."""

    fields: bytes


def to_parent(settings: LogSettings, send: Callable[[object], None]) -> None:
    """Send the child's log lines to its parent. Call it in the child before anything logs."""
    handler = _ForwardingHandler(send)
    handler.addFilter(RecordContext(keep=True))
    for name, level in settings.levels.items():
        logging.getLogger(name or None).setLevel(level)
    logging.disable(settings.disabled)
    logging.getLogger().addHandler(handler)


def logs_apart() -> None:
    """Let a forked process log to stderr, because it must not use the pipe to the parent."""
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler, _ForwardingHandler):
            root.removeHandler(handler)
            root.addHandler(logging.StreamHandler())


def log(line: LogLine) -> None:
    """Let the parent's loggers handle a child's line as their own."""
    record = logging.makeLogRecord(pickle.loads(line.fields))  # noqa: S301 - from our own child
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        with_line(logger, record)


class _ForwardingHandler(logging.Handler):
    """Sends log records in plain values."""

    def __init__(self, send: Callable[[object], None]):
        super().__init__()
        self._send = send
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Send one log record."""
        try:
            self._send(LogLine(self._plain(record)))
        except Exception:
            self.handleError(record)

    def _plain(self, record: logging.LogRecord) -> bytes:
        fields: dict[str, Any] = {**vars(record), CROSSED: True}
        fields["msg"], fields["args"] = record.getMessage(), None
        if record.exc_info:
            fields["exc_text"] = record.exc_text or self._formatter.formatException(record.exc_info)
            fields["exc_info"] = None
        try:
            return pickle.dumps(fields)
        except Exception:
            return pickle.dumps({name: _kept(value) for name, value in fields.items()})


def _kept(value: Any) -> Any:
    """Return a user's field in a form that can be pickled."""
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
