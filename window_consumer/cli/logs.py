"""Logging of the command line (text or JSON lines, secrets masked), and interpreter settings."""

from __future__ import annotations

import gc
import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

from window_consumer.runtime.context import CROSSED, RecordContext

LogFormat = Literal["text", "json"]

_PLACE = (
    "worker",
    "handler",
    "topic",
    "partition",
    "offset",
    "key",
    "attempt",
    "trace_id",
    "span_id",
)
_NOT_EXTRA = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", CROSSED, *_PLACE}
)
"""Fields of a log record that were not given as ``extra``."""


class MaskedFormatter(logging.Formatter):
    """Formats a line and masks secrets; ``mask`` is set once they are known."""

    mask: Callable[[str], str] = str

    def __init__(self, process: str = ""):
        super().__init__()
        self._process = process
        """The number of this replica, or empty."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the masked line."""
        return self.mask(self.line(record))

    def line(self, record: logging.LogRecord) -> str:
        """Return the line before masking."""
        raise NotImplementedError

    def stack(self, record: logging.LogRecord) -> str | None:
        """Return the traceback, or None; lines from child processes have it as text."""
        return self.formatException(record.exc_info) if record.exc_info else record.exc_text


class TextFormatter(MaskedFormatter):
    """``12:00:00.123 WARNING wc-charge-slot-1 message [orders[0]@17 attempt 2]``."""

    def line(self, record: logging.LogRecord) -> str:
        """Return the line with its traceback, if any."""
        at = datetime.fromtimestamp(record.created, UTC).astimezone()
        clock = at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03d}"
        place = ""
        if getattr(record, "offset", None) is not None and _is_of_a_handler(record):
            fields = vars(record)
            place = (
                f" [{fields['topic']}[{fields['partition']}]@{fields['offset']}"
                f" attempt {fields['attempt']}]"
            )
        which = f"{self._process}/" if self._process else ""
        who = f"{which}{record.threadName}"
        text = f"{clock} {record.levelname} {who} {record.getMessage()}{place}"
        stack = self.stack(record)
        return f"{text}\n{stack}" if stack else text


class JsonFormatter(MaskedFormatter):
    """One JSON object per line, with the fields given as ``extra``."""

    def line(self, record: logging.LogRecord) -> str:
        """Return the object as text."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if self._process:
            fields["process"] = int(self._process)
        for name in _PLACE:
            value = getattr(record, name, None)
            if value is not None:
                fields[name] = value
        stack = self.stack(record)
        if stack:
            fields["exception"] = stack
        for name, value in vars(record).items():
            if name not in _NOT_EXTRA:
                fields[f"extra_{name}" if name in fields else name] = value
        try:
            return json.dumps(fields, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError):
            # Keys that are not strings, or a value that contains itself.
            plain = {name: _plain(value) for name, value in fields.items()}
            return json.dumps(plain, ensure_ascii=False)


def _plain(value: object) -> object:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value


def _is_of_a_handler(record: logging.LogRecord) -> bool:
    """Return whether a handler wrote the line. Our own lines name their record in the text."""
    return not record.name.startswith("window_consumer")


def set_up(log_format: LogFormat, level: str, process: str = "") -> MaskedFormatter:
    """Send all log lines to stderr; the caller sets the formatter's mask later.

    ``process`` is this replica's number, as its lines show it.
    """
    kind = TextFormatter if log_format == "text" else JsonFormatter
    formatter: MaskedFormatter = kind(process)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(RecordContext(keep=True))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    return formatter


SWITCH_INTERVAL_S = 0.005
GC_THRESHOLD = 50_000


def tune(switch_interval_s: float, gc_threshold: int) -> None:
    """Set how long a thread keeps the interpreter, and how many new objects trigger a collection.

    A worker creates thousands of objects at a time and releases them in order. Collecting after
    every 700 would scan the whole windows and find nothing.
    """
    sys.setswitchinterval(switch_interval_s)
    if gc_threshold:
        gc.set_threshold(gc_threshold, 20, 50)
        gc.freeze()
