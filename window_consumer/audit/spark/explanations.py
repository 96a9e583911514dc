"""Assigns explanations to missing records: pure, DataFrame to DataFrame.

An explanation is an offset whose missing count has a known reason: it is unfinished, or was already
deleted. It belongs to one partition and the buckets of its neighbours, and explains one record.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.audit.spark.coverage import PLACE

_CLUSTER = (
    "struct<low_ms: bigint, high_ms: bigint, first_ms: bigint, last_ms: bigint,"
    " open: bigint, gone: bigint>"
)


def clusters(explanations: Column) -> Column:
    """Return explanations as an array of clusters; those of one cluster share buckets.

    A cluster has the buckets between which its explanations lie (``first_ms`` to ``last_ms``), the
    buckets that records out of order may belong to (``low_ms`` to ``high_ms``), and the number of
    each kind.
    """
    one = F.transform(
        explanations,
        lambda each: F.struct(
            F.greatest(each["low_ms"] - each["slack_ms"], F.lit(1)).alias("low_ms"),
            (each["high_ms"] + each["slack_ms"]).alias("high_ms"),
            each["low_ms"].alias("first_ms"),
            each["high_ms"].alias("last_ms"),
            each["open"].alias("open"),
            each["gone"].alias("gone"),
        ),
    )

    def added(done: Column, each: Column) -> Column:
        last = F.try_element_at(done, F.lit(-1))
        both = F.struct(
            last["low_ms"].alias("low_ms"),
            F.greatest(last["high_ms"], each["high_ms"]).alias("high_ms"),
            F.least(last["first_ms"], each["first_ms"]).alias("first_ms"),
            F.greatest(last["last_ms"], each["last_ms"]).alias("last_ms"),
            (last["open"] + each["open"]).alias("open"),
            (last["gone"] + each["gone"]).alias("gone"),
        )
        touches = F.coalesce(last["high_ms"] >= each["low_ms"], F.lit(False))
        others = F.slice(done, 1, F.greatest(F.size(done) - 1, F.lit(0)))
        return F.when(touches, F.concat(others, F.array(both))).otherwise(
            F.concat(done, F.array(each))
        )

    return F.aggregate(F.array_sort(one), F.array().cast(f"array<{_CLUSTER}>"), added)


def spent(placed: DataFrame) -> DataFrame:
    """Add how many of the missing records are ``held`` and how many are ``gone``.

    Takes rows of partitions and buckets with ``short``, ``has_passed``, ``length_ms``, the
    ``explanations`` of ``coverage.ways`` and their ``clusters``; drops the last two. Buckets that
    the group has not passed get unfinished offsets first. Then buckets with an explanation of their
    own, then those between an explanation's neighbours, then those nearby, early ones first.
    """
    is_short = (F.col("short") > 0) & (F.col("bucket_ms") > 0)
    passed = F.col("has_passed")
    rows = placed.withColumns(
        {
            "cluster": F.when(is_short, _of_bucket(F.col("clusters"))),
            "open_here": F.when(is_short, _here("open")).otherwise(0),
            "gone_here": F.when(is_short & passed, _here("gone")).otherwise(0),
        }
    ).drop("explanations", "clusters")
    rows = rows.withColumn("held", F.least("short", F.coalesce("open_here", F.lit(0))))
    rows = rows.withColumn(
        "gone", F.least(F.col("short") - F.col("held"), F.coalesce("gone_here", F.lit(0)))
    )
    rest = F.col("short") - F.col("held") - F.col("gone")
    rows = rows.withColumn("rest", rest).withColumn("claim", F.when(passed, rest).otherwise(0))
    mine = Window.partitionBy(*PLACE, "cluster")
    waiting = F.sum(F.when(~passed, F.col("rest")).otherwise(0)).over(mine)
    rows = rows.withColumns(
        {
            "open_left": F.greatest(
                F.col("cluster.open") - F.sum("held").over(mine) - waiting, F.lit(0)
            ),
            "gone_left": F.col("cluster.gone") - F.sum("gone").over(mine),
            "claimed": F.sum("claim").over(mine.orderBy(_distance(), "bucket_ms")),
        }
    )
    before, after = F.col("claimed") - F.col("claim"), F.col("claimed")
    all_left = F.col("open_left") + F.col("gone_left")
    held = F.least(after, F.col("open_left")) - F.least(before, F.col("open_left"))
    both = F.least(after, all_left) - F.least(before, all_left)
    has = F.col("cluster").isNotNull()
    more_held = F.when(has, held).otherwise(0)
    more_gone = F.when(has, both - held).otherwise(0)
    found = rows.withColumns({"held": F.col("held") + more_held, "gone": F.col("gone") + more_gone})
    return found.drop(
        *["cluster", "open_here", "gone_here", "rest", "claim", "open_left", "gone_left", "claimed"]
    )


def _of_bucket(found: Column) -> Column:
    """Return the cluster that a row's bucket lies in."""
    bucket, length = F.col("bucket_ms"), F.col("length_ms")

    def lies(each: Column) -> Column:
        return bucket.between(each["low_ms"] - each["low_ms"] % length, each["high_ms"])

    return F.get(F.filter(found, lies), F.lit(0))


def _here(kind: str) -> Column:
    """Return how many explanations belong to a row's bucket alone."""
    bucket, length = F.col("bucket_ms"), F.col("length_ms")

    def add(sum_: Column, each: Column) -> Column:
        starts = [each[end] - each[end] % length for end in ("low_ms", "high_ms")]
        is_here = (starts[0] == bucket) & (starts[1] == bucket)
        return sum_ + F.when(is_here, each[kind]).otherwise(0)

    return F.aggregate("explanations", F.lit(0).cast("bigint"), add)


def _distance() -> Column:
    """Return how far a row's bucket lies outside its cluster's; at either end it is one bucket."""
    bucket, length = F.col("bucket_ms"), F.col("length_ms")
    first, last = F.col("cluster.first_ms"), F.col("cluster.last_ms")
    return F.greatest(first - bucket + length, bucket - last + length, F.lit(0))
