"""Points in time on the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click


def since_1970(text: str, units_per_s: int) -> int:
    """Return the units since 1970 of an ISO 8601 time, in UTC where it names no zone.

    Raises ValueError, and OverflowError for a time that lies beyond what a datetime can be.
    """
    time = datetime.fromisoformat(text)
    time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    return round(time.timestamp() * units_per_s)


class Time(click.ParamType[int]):
    """A point in time as ISO 8601, in UTC where it names no zone; so many units since 1970."""

    name = "time"

    def __init__(self, units_per_s: int):
        self._units_per_s = units_per_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the units since 1970."""
        if isinstance(value, int):
            return value
        try:
            return since_1970(str(value), self._units_per_s)
        except (ValueError, OverflowError):
            now = datetime.now().astimezone().replace(microsecond=0)
            self.fail(
                f"{value!r} is no time: write it as 2026-01-31, 2026-01-31T12:00 (UTC), or"
                f" {now.isoformat()}",
                param,
                ctx,
            )
