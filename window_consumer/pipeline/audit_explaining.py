"""Which records a bucket's difference is about: pure, DataFrame to DataFrame."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.pipeline.audit_places import PLACE, holes
from window_consumer.pipeline.audit_sides import UNKNOWN, aligned, sides

EXPLANATION: Final = (*PLACE, "came", "left", "missing", "counted", "unknown_ids")


def explanation(judged: DataFrame, bucket_ms: int, *, grace_ms: int) -> DataFrame:
    """Return where the records of a bucket lie that make its difference: ``EXPLANATION``.

    Takes rows of ``audit.effective``, with those that were replaced, and the start of a bucket. A
    row for each ``group``, ``topic`` and ``partition`` in which other records left than came:
    ``came`` and ``left``, as runs of offsets (the second one exclusive) what nobody has counted
    between what was (``missing``: the lost ones are among them, if they were ever in the log) and
    what was counted of the bucket (``counted``: what was written twice is there), and the ids of
    sends of which nobody knows, as far as they have one (``unknown_ids``).
    """
    rows = aligned(judged)
    here = sides(judged, grace_ms=grace_ms).where(F.col("bucket_ms") == bucket_ms)
    both = F.col("came_ids") & F.col("left_ids")
    other = (F.col("came_xor") != F.col("left_xor")) | (F.col("came_sum") != F.col("left_sum"))
    odd = here.where((F.col("came") != F.col("left")) | (both & other) | (F.col(UNKNOWN) > 0))
    run = F.array("first", "stop")
    between = F.lit(bucket_ms).between(F.col("low_ms"), F.col("high_ms"))
    missing = (
        holes(rows)
        .where(between)
        .groupBy(*PLACE)
        .agg(F.array_sort(F.collect_set(run)).alias("missing"))
    )
    mine = rows.where(f"NOT replaced AND bucket_ms = {bucket_ms:d} AND count > 0")
    counted = (
        mine.where("tier != 'gone'")
        .select(*PLACE, F.explode("offsets").alias("run"))
        .groupBy(*PLACE)
        .agg(F.array_sort(F.collect_set("run")).alias("counted"))
    )
    unknown = (
        mine.where(F.col("tier") == UNKNOWN)
        .select("topic", "partition", F.explode("ids").alias("id"))
        .groupBy("topic", "partition")
        .agg(F.array_sort(F.collect_set("id")).alias("unknown_ids"))
    )
    named = odd.select(*PLACE, "came", "left")
    placed = named.join(missing, list(PLACE), "left").join(counted, list(PLACE), "left")
    return placed.join(unknown, ["topic", "partition"], "left")[list(EXPLANATION)]
