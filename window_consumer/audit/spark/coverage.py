"""A group's progress through a partition, as its counts show it.

Pure, DataFrame to DataFrame. All functions take rows of ``counts.effective``, replaced ones
included.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.audit.count import CountTier
from window_consumer.spark.tables import LATEST_MS

PLACE: Final = ("group", "topic", "partition")
HELD: Final = (
    "`group` string, topic string, partition int, topic_hash decimal(20, 0),"
    " first bigint, stop bigint, anytime boolean"
)
"""Offsets that a group has not finished according to its commits: a run each, ``stop`` exclusive.
Their buckets lie between those of their neighbours, or anywhere with ``anytime``.
"""

_COUNTING: Final = ("client", "incarnation")
_IS_GONE: Final = f"tier = '{CountTier.GONE}'"


def ways(judged: DataFrame, held: DataFrame | None = None) -> DataFrame:
    """Return possible explanations of missing records, for each place.

    ``held`` has the columns of ``HELD``. Columns, besides those of ``PLACE``: ``loose``, the holes
    between two assignments (see ``holes``), and ``explanations``: runs of offsets whose missing
    count has a known reason. An explanation has the buckets between which its records lie
    (``low_ms``, ``high_ms``), how many of them are ``open`` (not finished) or ``gone``, and how far
    neighbours may be out of order (``slack_ms``, milliseconds). Both columns are arrays.
    """
    found = _with_last_words(judged, _swept(judged, held))
    hole = F.struct("low_ms", "high_ms", "cut_off")
    is_loose = F.col("is_hole") & F.col("changed_hands")
    is_explanation = F.col("explanation.open") + F.col("explanation.gone") > 0
    return (
        found.where(is_loose | is_explanation)
        .groupBy(*PLACE)
        .agg(
            F.collect_list(F.when(is_loose, hole)).alias("loose"),
            F.collect_list(F.when(is_explanation, F.col("explanation"))).alias("explanations"),
        )
    )


def holes(judged: DataFrame) -> DataFrame:
    """Return the offsets between counted ones that were not counted.

    A hole need not be a record: it may be a transaction marker, or compacted. Columns: ``group``,
    ``topic``, ``partition``, ``first`` and ``stop`` (exclusive); ``low_ms`` and ``high_ms``, the
    buckets of its neighbours; ``changed_hands``: it lies between two assignments; ``cut_off``: the
    first of the two ended without a final count, so its counts may be incomplete.
    """
    found = _with_last_words(judged, _swept(judged, None).where("is_hole"))
    return found.select(
        *PLACE,
        F.col("before.stop").alias("first"),
        F.col("first").alias("stop"),
        "low_ms",
        "high_ms",
        "changed_hands",
        "cut_off",
    )


def _swept(judged: DataFrame, held: DataFrame | None) -> DataFrame:
    """Return the runs of offsets of each place with their neighbours.

    ``before``: of all counted runs that begin earlier, the one that reaches farthest; ``is_hole``:
    it does not reach this run. ``explanation``: see ``ways``, with zeros where a run is none.
    """
    runs = _runs(judged)
    if held is not None:
        runs = runs.unionByName(held, allowMissingColumns=True)
    runs = runs.withColumns(
        {
            "timed": F.when(
                F.expr("NOT is_gone"), F.struct("stop", "low_ms", "high_ms", "length_ms", "copied")
            ),
            "counted": F.when(
                F.col("client").isNotNull(),
                F.struct("stop", *_COUNTING, "epoch_ms", "low_ms", "high_ms"),
            ),
        }
    )
    in_order = Window.partitionBy(*PLACE, "topic_hash").orderBy("first", "stop")
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    placed = runs.withColumns(
        {
            "before": F.max("counted").over(earlier),
            "under": F.max("timed").over(earlier),
            "over": F.expr(
                "lead(timed) IGNORE NULLS OVER (PARTITION BY `group`, topic, partition, topic_hash"
                " ORDER BY first, stop)"
            ),
        }
    )
    is_hole = F.col("counted").isNotNull() & (F.col("before.stop") < F.col("first"))
    return placed.withColumns(
        {"is_hole": F.coalesce(is_hole, F.lit(False)), "explanation": _explanation()}
    ).where("is_hole OR explanation.open + explanation.gone > 0")


def _runs(judged: DataFrame) -> DataFrame:
    """Return the runs of offsets that were counted together, including gone ones."""
    return (
        judged.where("NOT replaced AND size(offsets) > 0")
        .select(
            *[*PLACE, "topic_hash", *_COUNTING, "epoch_ms", "bucket_ms", "length_ms"],
            F.expr(_IS_GONE).alias("is_gone"),
            (F.col("origin") != "").alias("copied"),
            F.explode("offsets").alias("run"),
        )
        .groupBy(*PLACE, "topic_hash", *_COUNTING, "epoch_ms", "run", "is_gone")
        .agg(
            F.min("bucket_ms").alias("low_ms"),
            F.max("bucket_ms").alias("high_ms"),
            F.max("length_ms").alias("length_ms"),
            F.max("copied").alias("copied"),
        )
        .select(
            "*", F.expr("run[0] AS first"), F.expr("run[1] AS stop"), F.lit(False).alias("anytime")
        )
    )


def _explanation() -> Column:
    """Return a run as an explanation; zeros if it was counted."""
    run = F.col("stop") - F.col("first")
    is_gone = F.coalesce("is_gone", F.lit(False))
    under, over = F.col("under"), F.col("over")
    # Retry topics are in the order of failures, not of the first timestamps.
    anytime = (
        F.col("anytime")
        | F.coalesce(under["copied"], F.lit(False))
        | F.coalesce(over["copied"], F.lit(False))
    )
    low = F.when(~anytime & under.isNotNull(), F.least(under["low_ms"], over["low_ms"]))
    high = F.when(~anytime & over.isNotNull(), F.greatest(under["high_ms"], over["high_ms"]))
    noticed = F.when(is_gone, F.col("high_ms"))
    return F.struct(
        F.coalesce(low, F.lit(0)).cast("bigint").alias("low_ms"),
        F.least(F.coalesce(high, F.lit(LATEST_MS)), noticed).cast("bigint").alias("high_ms"),
        F.when(F.col("client").isNull(), run).otherwise(0).alias("open"),
        F.when(is_gone, run).otherwise(0).alias("gone"),
        F.coalesce("length_ms", under["length_ms"], over["length_ms"], F.lit(0)).alias("slack_ms"),
    )


def _with_last_words(judged: DataFrame, swept: DataFrame) -> DataFrame:
    """Add ``changed_hands`` and ``cut_off``; set ``low_ms`` and ``high_ms`` to those of holes."""
    ended = judged.groupBy(*_COUNTING).agg(
        F.max("final").alias("has_ended"), F.unix_millis(F.max("written_at")).alias("last_ms")
    )
    known = ended.select(
        F.col("client").alias("of_client"),
        F.col("incarnation").alias("of_incarnation"),
        "has_ended",
        "last_ms",
    )
    same = F.lit(True)
    for name in (*_COUNTING, "epoch_ms"):
        same &= F.col(f"before.{name}") == F.col(name)
    its = (F.col("before.client") == F.col("of_client")) & (
        F.col("before.incarnation") == F.col("of_incarnation")
    )
    silent = ~F.col("has_ended") & ~F.coalesce(F.col("last_ms") > F.col("epoch_ms"), F.lit(False))
    return swept.join(known, its, "left").withColumns(
        {
            "low_ms": F.least("before.low_ms", "low_ms"),
            "high_ms": F.greatest("before.high_ms", "high_ms"),
            "changed_hands": ~same,
            "cut_off": ~same & silent,
        }
    )
