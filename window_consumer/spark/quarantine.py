"""Quarantine: unreadable records go to a table with a reason. Nothing is dropped."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.spark.schemas import QUARANTINE

MOST_BYTES: Final = 1024**2
"""The most bytes kept of a value."""


def readable(judged: DataFrame) -> DataFrame:
    """Return the records without a ``reason``."""
    return judged.where(F.col("reason").isNull())


def quarantined(judged: DataFrame, subject: str) -> DataFrame:
    """Return the records with a ``reason``, as ``schemas.QUARANTINE``; deterministic.

    Takes the columns of Spark's Kafka source and ``reason``.
    """
    return judged.where(F.col("reason").isNotNull()).select(
        F.lit(subject).alias("subject"),
        "reason",
        "topic",
        "partition",
        "offset",
        F.col("timestamp").alias("written_at"),
        F.substring("value", 1, MOST_BYTES).alias("value"),
    )[[each.name for each in QUARANTINE]]
