"""Buckets on the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click


class Bucket(click.ParamType[int]):
    """A bucket by its start, as the report prints it: ISO 8601, in UTC where it names no zone."""

    name = "bucket"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds since 1970."""
        if isinstance(value, int):
            return value
        try:
            start = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no bucket's start such as 2026-01-31T12:00:00Z", param, ctx)
        return int((start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp() * 1000)
