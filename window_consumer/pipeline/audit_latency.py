"""How long records took from their producer to their end: pure, DataFrame to DataFrame."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.model.audit_count import SUB_BUCKETS, Tier

QUANTILES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
LATENCIES: Final = ("topic", "group", "host", "count", *QUANTILES)
_KEYS: Final = ("topic", "group", "host")


def latencies(judged: DataFrame) -> DataFrame:
    """Return the latencies of finished records: the columns of ``LATENCIES``.

    Takes rows of ``audit.effective``, with those that were replaced. A row for each ``topic`` (the
    one of the first delivery: what was retried counts in it) and ``group``, and one more for each
    ``host``, which is null in the first. Milliseconds, at most 12.5 % too small, as
    ``audit_count.latency_bucket`` has them; ``count`` is how many have one.
    """
    source = F.coalesce(F.nullif("origin", F.lit("")), F.col("topic"))
    host = F.regexp_replace("instance", ":[^:]*$", "")
    found = judged.where("NOT replaced").where(F.col("tier") == str(Tier.FINISHED))
    buckets = (
        found.select(
            source.alias("topic"),
            "group",
            F.explode(F.array(host, F.lit(None))).alias("host"),
            "latency",
        )
        .select(*_KEYS, F.explode("latency").alias("bucket", "number"))
        .groupBy(*_KEYS, F.col("bucket").cast("int").alias("bucket"))
        .agg(F.sum("number").alias("number"))
    )
    upwards = Window.partitionBy(*_KEYS).orderBy("bucket")
    reached = buckets.withColumn("reached", F.sum("number").over(upwards)).withColumn(
        "total", F.sum("number").over(Window.partitionBy(*_KEYS))
    )

    def quantile(share: float) -> Column:
        return F.min(F.when(F.col("reached") >= F.col("total") * share, F.col("least_ms")))

    return (
        reached.withColumn("least_ms", _least_ms(F.col("bucket")))
        .groupBy(*_KEYS)
        .agg(
            F.sum("number").alias("count"),
            *[quantile(share).alias(name) for name, share in QUANTILES.items()],
        )[list(LATENCIES)]
    )


def _least_ms(bucket: Column) -> Column:
    """Return where a bucket begins, as ``audit_count.latency_bounds``."""
    shift = F.greatest(F.lit(0), F.floor(bucket / SUB_BUCKETS) - 1)
    return ((bucket - shift * SUB_BUCKETS) * F.pow(F.lit(2), shift)).cast("bigint")
