"""Buckets on the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import click

from window_consumer.cli.options import since_1970

WITHOUT_TIMESTAMP: Final = "without timestamp"
"""What the report prints of the bucket that has no start."""


class Bucket(click.ParamType[int]):
    """A bucket by its start, as the report prints it: ISO 8601, in UTC where it names no zone."""

    name = "bucket"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds since 1970, 0 for the bucket without a start."""
        if isinstance(value, int):
            return value
        if value == WITHOUT_TIMESTAMP:
            return 0
        try:
            start_ms = since_1970(str(value), 1000)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no bucket's start such as 2026-01-31T12:00:00Z", param, ctx)
        if start_ms < 0:
            self.fail(f"{value!r} lies before 1970, where no bucket is", param, ctx)
        return start_ms


def name_of(bucket_ms: int) -> str:
    """Return the name of a bucket: its start in UTC."""
    if not bucket_ms:
        return WITHOUT_TIMESTAMP
    return f"{datetime.fromtimestamp(bucket_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
