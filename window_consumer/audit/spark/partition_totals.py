"""The records that came into each partition and left it, by group and bucket.

Pure, DataFrame to DataFrame. Like ``audit.balance``, but per partition, so that a loss in one is
not hidden by a duplicate in another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.audit.count import LEAVING, WRITTEN, CountTier
from window_consumer.audit.spark.counts import UNREAD_CAME, UNREAD_LEFT, sum64
from window_consumer.audit.spark.coverage import PLACE, ways
from window_consumer.audit.spark.explanations import clusters, spent

KEYS: Final = ("topic", "group", "bucket_ms")
CAME: Final = tuple(str(tier) for tier in CountTier if tier in WRITTEN)
UNKNOWN, GONE = str(CountTier.UNKNOWN), str(CountTier.GONE)
LEFT: Final = LEAVING
_IS_WRITTEN: Final = [*CAME, UNKNOWN, UNREAD_CAME]
_SIDES: Final = {"came": CAME, "left": LEFT}
_UNREAD: Final = {"came": UNREAD_CAME, "left": UNREAD_LEFT}
"""Tiers of counts in quarantine, by side."""
KINDS: Final = ("waiting", GONE, "early", "uncounted", "missing")
"""Why records that came into a partition have not left it. In order: the group has not reached or
finished them; they were gone when it got there; the group began later; the partition's owner may
not have reported them; none of these.
"""


def topics(judged: DataFrame) -> DataFrame:
    """Return the longest bucket of each ``topic`` and an array of its ``groups``."""
    consumes = "NOT replaced AND tier NOT IN ({})".format(", ".join(map(repr, _IS_WRITTEN)))
    return judged.groupBy("topic").agg(
        F.max("length_ms").alias("longest_ms"),
        F.collect_set(F.when(F.expr(consumes), F.col("group"))).alias("groups"),
    )


def aligned(judged: DataFrame) -> DataFrame:
    """Return rows with each bucket widened to the longest of its topic."""
    whole = F.col("longest_ms")
    rows = judged.join(F.broadcast(topics(judged)), ["topic"])
    start = whole_bucket(F.col("bucket_ms"), whole)
    return rows.withColumns({"bucket_ms": start, "length_ms": whole}).drop("longest_ms", "groups")


def whole_bucket(bucket_ms: Column, longest_ms: Column) -> Column:
    """Return the start of the longest bucket that contains a bucket."""
    return bucket_ms - bucket_ms % longest_ms


def sides(
    judged: DataFrame,
    *,
    grace_ms: int,
    caught_up: DataFrame | None = None,
    held: DataFrame | None = None,
    has_gone: bool = True,
) -> DataFrame:
    """Return both sides of each partition's balance, and why records may be missing.

    Takes rows of ``counts.effective``, replaced ones included. ``caught_up`` has the ``group``,
    ``topic`` and ``partition`` of those known to have read everything, ``held`` what is not
    finished, see ``coverage.HELD``. Without ``held``, and if nothing is gone (not ``has_gone``),
    the plan is shorter. Buckets are as long as the longest of their topic; ``fits`` is false where
    some length does not divide the longest.

    There is a row for each ``topic``, ``group``, ``bucket_ms`` and ``partition`` (-1 where the
    producer did not know it). Columns: one for each tier but ``gone``; ``came``, ``left``, and
    checksums and ``*_ids`` for both; ``over`` (more left than came); what is short, by its kind,
    see ``KINDS``; ``has_passed`` (the group has read beyond the bucket); ``length_ms``; and
    ``seconds``, when its counts came to Kafka, with both ends of each silence longer than
    ``grace_ms``.
    """
    by_tier = _added(judged, max(1, grace_ms // 1000))
    both = _both(by_tier.join(F.broadcast(topics(judged)), ["topic"]))
    between = ways(judged, held)
    if held is not None or has_gone:
        between = between.withColumn("clusters", clusters(F.col("explanations")))
    else:
        between = between.drop("explanations")
    return _explained(both, between, grace_ms, caught_up)


def _both(by_tier: DataFrame) -> DataFrame:
    """Join the sides: each group's row of a topic gets the records that came."""
    whole = F.col("longest_ms")
    is_written = F.col("tier").isin(_IS_WRITTEN)
    readers = F.when(~is_written, F.array("reader")).when(F.size("groups") > 0, F.col("groups"))
    placed = by_tier.select(
        "*",
        F.explode(F.coalesce(readers, F.array(F.lit("")))).alias("group"),
        whole_bucket(F.col("bucket_ms"), whole).alias("start_ms"),
        (whole % F.greatest("length_ms", F.lit(1)) == 0).alias("fitting"),
    )

    def of(name: str, tiers: Iterable[str], otherwise: Any) -> Column:
        return F.when(F.col("tier").isin(*tiers), F.col(name)).otherwise(otherwise)

    end_s = F.floor((F.col("start_ms") + whole) / 1000)
    arrived = F.array(F.greatest("from_s", end_s), F.greatest("to_s", end_s))
    added = placed.groupBy(
        "topic", "group", F.col("start_ms").alias("bucket_ms"), "partition", "longest_ms"
    ).agg(
        *[F.sum(of("count", [tier], 0)).alias(tier) for tier in (*_IS_WRITTEN, *LEFT, UNREAD_LEFT)],
        *[F.bit_xor(of("xor", side, 0)).alias(f"{name}_xor") for name, side in _SIDES.items()],
        *[sum64(of("sum", side, 0)).alias(f"{name}_sum") for name, side in _SIDES.items()],
        *[
            F.every(of("has_ids", [*side, _UNREAD[name]], True)).alias(f"{name}_ids")
            for name, side in _SIDES.items()
        ],
        F.every("fitting").alias("fits"),
        F.max("is_copied").alias("copied"),
        F.min(of("first_offset", LEFT, None)).alias("first_offset"),
        F.flatten(F.collect_list(arrived)).alias("seconds"),
    )
    sums = [sum(map(F.col, side), F.lit(0)).alias(name) for name, side in _SIDES.items()]
    both = added.select("*", *sums, F.col("longest_ms").alias("length_ms"))
    return both.where(f"came + {UNKNOWN} + left > 0")


def _added(judged: DataFrame, cell_s: int) -> DataFrame:
    """Add up equal kinds of counts that came within one cell of time.

    A cell is shorter than any relevant silence, so its first and last second represent it. The
    aggregates are all of fixed size: else Spark would sort the rows.
    """
    arrived_s = F.coalesce(F.unix_seconds("written_at"), F.lit(0))
    with_ids = F.col("id_xor").isNotNull() & F.col("id_sum").isNotNull()
    live = judged.where(f"NOT replaced AND topic != '' AND tier != '{GONE}'")
    return live.groupBy(
        "topic",
        "partition",
        "bucket_ms",
        "length_ms",
        "tier",
        F.when(~F.col("tier").isin(_IS_WRITTEN), F.col("group")).alias("reader"),
        F.floor(arrived_s / cell_s).alias("cell"),
    ).agg(
        F.sum("count").alias("count"),
        F.bit_xor(F.when(with_ids, F.col("id_xor")).otherwise(0)).alias("xor"),
        sum64(F.when(with_ids, F.col("id_sum")).otherwise(0)).alias("sum"),
        F.every(with_ids | (F.col("count") == 0)).alias("has_ids"),
        F.max(F.col("origin") != "").alias("is_copied"),
        F.min(F.get(F.get("offsets", F.lit(0)), F.lit(0))).alias("first_offset"),
        F.min(arrived_s).alias("from_s"),
        F.max(arrived_s).alias("to_s"),
    )


def _explained(
    both: DataFrame, between: DataFrame, grace_ms: int, caught_up: DataFrame | None
) -> DataFrame:
    """Divide missing records by the known progress of the group."""
    place, counted = Window.partitionBy(*PLACE), F.col("left") > 0
    timed = counted & (F.col("bucket_ms") > 0)
    bucket, is_known = F.col("bucket_ms"), F.col("partition") >= 0
    placed = both.withColumns(
        {
            "first_offset": F.min("first_offset").over(place),
            "first_ms": F.min(F.when(timed, bucket)).over(place),
            "last_ms": F.max(F.when(counted, bucket)).over(place),
            "short": F.when(is_known & (F.col("came") > F.col("left")), F.expr("came - left")),
            "over": F.when(is_known & (F.col("left") > F.col("came")), F.expr("left - came")),
        }
    ).fillna({"short": 0, "over": 0})
    # A quarantined count was counted, but its tier is unknown.
    unread = F.least("short", UNREAD_LEFT) + F.least("over", UNREAD_CAME)
    placed = placed.withColumns(
        {
            "unread": unread,
            "short": F.col("short") - F.least("short", UNREAD_LEFT),
            "over": F.col("over") - F.least("over", UNREAD_CAME),
        }
    )
    placed = placed.join(F.broadcast(between), list(PLACE), "left")
    # Copies wait in retry topics.
    later = F.col("last_ms") > bucket + F.when(F.col("copied"), grace_ms).otherwise(0)
    passed = F.coalesce(later, F.lit(False))
    if caught_up is not None:
        done = caught_up.select(*PLACE, F.lit(True).alias("caught_up"))
        placed = placed.join(F.broadcast(done), list(PLACE), "left")
        passed |= F.coalesce("caught_up", F.lit(False))

    def lies(hole: Column) -> Column:
        low, high = (whole_bucket(hole[end], F.col("length_ms")) for end in ("low_ms", "high_ms"))
        return bucket.between(low, high)

    placed = placed.withColumn("has_passed", passed)
    if "clusters" in placed.columns:
        placed = spent(placed)
    else:
        placed = placed.withColumns({"held": F.lit(0), GONE: F.lit(0)})
    left = F.col("short") - F.col("held") - F.col(GONE)
    loose = F.coalesce(F.exists("loose", lies), F.lit(False)) & (left > 0)
    cut_off = F.exists("loose", lambda hole: lies(hole) & hole["cut_off"])
    placed = placed.withColumns(
        {"is_loose": loose, "cut_off": F.coalesce(cut_off, F.lit(False))}
    ).drop("loose")
    placed = in_stretches(
        placed, PLACE, F.col("is_loose"), counted == F.lit(False), "nobody_counts"
    )
    begun = (F.col("first_offset") == 0) | (bucket > F.col("first_ms"))
    kind = (
        F.when(~F.col("has_passed"), "waiting")
        .when(~F.coalesce(begun, F.lit(True)), "early")
        .when(F.col("nobody_counts") | (F.col("is_loose") & F.col("cut_off")), "uncounted")
        .otherwise("missing")
    )
    named = placed.withColumn("kind", kind)
    numbers = {name: F.when(F.col("kind") == name, left).otherwise(0) for name in KINDS}
    numbers["waiting"] += F.col("held")
    numbers[GONE] = F.col(GONE)
    numbers["uncounted"] += F.col("unread")
    return named.withColumns(numbers)


def in_stretches(
    rows: DataFrame, by: Iterable[str], belongs: Column, is_sure: Column, name: str
) -> DataFrame:
    """Add a column: whether a row is in a stretch that contains a certain row.

    A stretch is consecutive rows, by ``bucket_ms``, of the same ``by`` that belong to it.
    """
    in_order = Window.partitionBy(*by).orderBy("bucket_ms")
    ends = F.sum(F.when(belongs, 0).otherwise(1)).over(in_order)
    stretch = Window.partitionBy(*by, "stretch")
    is_one = F.max(belongs & is_sure).over(stretch)
    return rows.withColumn("stretch", ends).withColumn(name, belongs & is_one).drop("stretch")
