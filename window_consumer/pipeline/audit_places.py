"""What counts of an audit tell about a group's way through a partition.

Pure, DataFrame to DataFrame. All take rows of ``audit.effective``, with those that were replaced.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

PLACE: Final = ("group", "topic", "partition")
_COUNTING: Final = ("client", "incarnation")


def holes(judged: DataFrame) -> DataFrame:
    """Return which offsets between counted ones were not counted.

    A hole may be no record at all: a transaction's marker, or what compaction took. Columns:
    ``group``, ``topic``, ``partition``, ``first`` and ``stop`` (exclusive), ``low_ms`` and
    ``high_ms``: between which buckets its neighbours lie; ``changed_hands``: it lies between two
    assignments of the partition; ``cut_off``: the first of the two ended without its last words, so
    that counts of it may be missing.
    """
    ended = judged.groupBy(*_COUNTING).agg(
        F.max("final").alias("said_so"), F.unix_millis(F.max("written_at")).alias("heard_ms")
    )
    stretches = (
        judged.where("NOT replaced AND size(offsets) > 0")
        .select(*PLACE, "topic_hash", *_COUNTING, "epoch_ms", "bucket_ms", F.explode("offsets"))
        .groupBy(*PLACE, "topic_hash", *_COUNTING, "epoch_ms", "col")
        .agg(F.min("bucket_ms").alias("low_ms"), F.max("bucket_ms").alias("high_ms"))
        .withColumns({"first": F.col("col")[0], "stop": F.col("col")[1]})
    )
    earlier = Window.partitionBy(*PLACE, "topic_hash").orderBy("first", "stop")
    # Of all that begin earlier the one that reaches farthest: its stop comes first.
    farthest = F.max(F.struct("stop", *_COUNTING, "epoch_ms", "low_ms", "high_ms")).over(
        earlier.rowsBetween(Window.unboundedPreceding, -1)
    )
    found = stretches.withColumn("before", farthest).where("before.stop < first")
    same = F.lit(True)
    for name in (*_COUNTING, "epoch_ms"):
        same &= F.col(f"before.{name}") == F.col(name)
    known = ended.select(
        F.col("client").alias("of_client"),
        F.col("incarnation").alias("of_incarnation"),
        "said_so",
        "heard_ms",
    )
    its = (F.col("before.client") == F.col("of_client")) & (
        F.col("before.incarnation") == F.col("of_incarnation")
    )
    silent = ~F.col("said_so") & ~F.coalesce(F.col("heard_ms") > F.col("epoch_ms"), F.lit(False))
    return found.join(known, its).select(
        *PLACE,
        F.col("before.stop").alias("first"),
        F.col("first").alias("stop"),
        F.least("before.low_ms", "low_ms").alias("low_ms"),
        F.greatest("before.high_ms", "high_ms").alias("high_ms"),
        (~same).alias("changed_hands"),
        (~same & silent).alias("cut_off"),
    )


def between_hands(holes_: DataFrame) -> DataFrame:
    """Return for each place the holes between two assignments, as ``loose``: an array of them."""
    hole = F.struct("low_ms", "high_ms", "cut_off")
    return holes_.where("changed_hands").groupBy(*PLACE).agg(F.collect_list(hole).alias("loose"))
