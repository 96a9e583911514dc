"""Rows that come on a test's command, or not at all."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

DEADLINE_S = 240.0
"""Only a guard against hanging: a busy machine may need minutes instead of a second."""


def held_up(given: DataFrame, running: Path, gate: Path) -> DataFrame:
    """Return the same rows; they come when there is a `gate`, and `running` tells they are due."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        running.touch()
        deadline = time.monotonic() + DEADLINE_S
        while not gate.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from batches

    return given.mapInArrow(wait, given.schema)


def ended(given: DataFrame) -> DataFrame:
    """Return rows whose Python process is killed at the first of them."""

    def end(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in batches:
            os.kill(os.getpid(), signal.SIGKILL)
            yield each

    return given.mapInArrow(end, given.schema)
