"""Finds log lines by the ids of their events, not by their texts."""

from __future__ import annotations

from collections.abc import Iterable
from logging import LogRecord
from typing import Any

import pytest

from window_consumer.model.log_events import LogEvent

Lines = pytest.LogCaptureFixture | Iterable[LogRecord]


def _records(lines: Lines) -> list[LogRecord]:
    return list(lines.records if isinstance(lines, pytest.LogCaptureFixture) else lines)


def events_in(lines: Lines) -> list[LogEvent]:
    """Return the events of our own lines, in order."""
    return [vars(each)["event"] for each in _records(lines) if "event" in vars(each)]


def lines_of(lines: Lines, event: LogEvent, **fields: Any) -> list[LogRecord]:
    """Return the lines of one event that have these fields."""
    wanted = {"event": event, **fields}.items()
    return [each for each in _records(lines) if wanted <= vars(each).items()]


def fields_of(lines: Lines, event: LogEvent) -> dict[str, Any]:
    """Return the fields of the only line of an event."""
    (line,) = lines_of(lines, event)
    return vars(line)
