"""What came into each partition and what left it, by group and bucket.

Pure, DataFrame to DataFrame. The balance of ``audit.balance``, a partition at a time: a loss in one
does not hide behind a duplicate in another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.model.audit_count import WRITTEN, Tier
from window_consumer.pipeline.audit import signed64
from window_consumer.pipeline.audit_places import PLACE, between_hands, holes

KEYS: Final = ("topic", "group", "bucket_ms")
CAME: Final = tuple(str(tier) for tier in Tier if tier in WRITTEN)
UNKNOWN, GONE = str(Tier.UNKNOWN), str(Tier.GONE)
LEFT: Final = tuple(str(tier) for tier in Tier if str(tier) not in {*CAME, UNKNOWN, GONE})
_IS_WRITTEN: Final = [*CAME, UNKNOWN]
KINDS: Final = ("waiting", "early", "uncounted", "missing")
"""Of records that came into a partition and have not left it: the group has not got there; it began
later; who had the partition may not have told of them; and what remains."""


def aligned(judged: DataFrame) -> DataFrame:
    """Return rows whose buckets are as long as the longest of their topic's.

    ``fits`` is false where that cannot be: the lengths of some are no parts of the longest.
    """
    lengths = judged.groupBy("topic").agg(F.max("length_ms").alias("longest_ms"))
    whole = F.col("longest_ms")
    rows = judged.join(F.broadcast(lengths), ["topic"])
    rows = rows.withColumn("fits", whole % F.greatest("length_ms", F.lit(1)) == 0)
    start = F.col("bucket_ms") - F.col("bucket_ms") % whole
    return rows.withColumns({"bucket_ms": start, "length_ms": whole}).drop("longest_ms")


def sides(rows: DataFrame, *, copies_wait_ms: int, caught_up: DataFrame | None = None) -> DataFrame:
    """Return both sides of each partition's balance, and why one of them may be short.

    Takes rows of ``aligned``. ``caught_up`` has the ``group``, ``topic`` and ``partition`` of those
    that are known to have read everything. A row for each ``topic``, ``group``, ``bucket_ms`` and
    ``partition`` (-1 where who wrote did not know it): a column for each tier but ``gone``,
    ``came``, ``left``, checksums and ``*_ids`` for both, ``over`` (more has left than came), what
    is short by its kind, see ``KINDS``, ``has_passed`` (the group has read beyond the bucket), and
    of the counts ``length_ms``, ``fits`` and ``*_s``, the seconds at which they came to Kafka.
    """
    live = rows.where("NOT replaced AND topic != ''")
    is_written = F.col("tier").isin(_IS_WRITTEN)
    consumed = live.where(~is_written)
    here = ["topic", "bucket_ms", "partition"]
    came = _side(live.where(is_written), here, CAME, "came", UNKNOWN)
    left = _side(consumed.where(F.col("tier") != GONE), ["group", *here], LEFT, "left")
    groups = F.broadcast(consumed.select("topic", "group").distinct())
    spread = came.join(groups, ["topic"], "left").fillna({"group": ""})
    both = spread.join(left, ["group", *here], "full")
    others = {*PLACE, "bucket_ms", "first_offset"}
    numbers = {name: 0 for name, kind in both.dtypes if kind == "bigint" and name not in others}
    flags = {name: True for name, kind in both.dtypes if kind == "boolean"}
    both = both.fillna({**numbers, **flags}).where(f"came + {UNKNOWN} + left > 0")
    return _explained(both, between_hands(holes(rows)), copies_wait_ms, caught_up)


def _explained(
    both: DataFrame, between: DataFrame, copies_wait_ms: int, caught_up: DataFrame | None
) -> DataFrame:
    """Divide what is short by what is known of the group's way through the partition."""
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
    placed = placed.join(F.broadcast(between), list(PLACE), "left")
    later = F.col("last_ms") > bucket + F.when(
        F.expr("coalesce(came_copied, 0) + coalesce(left_copied, 0) > 0"), copies_wait_ms
    ).otherwise(0)
    passed = F.coalesce(later, F.lit(False))
    if caught_up is not None:
        done = caught_up.select(*PLACE, F.lit(True).alias("caught_up"))
        placed = placed.join(F.broadcast(done), list(PLACE), "left")
        passed |= F.coalesce("caught_up", F.lit(False))

    def lies(hole: Column) -> Column:
        return bucket.between(hole["low_ms"], hole["high_ms"])

    loose = F.coalesce(F.exists("loose", lies), F.lit(False)) & (F.col("short") > 0)
    cut_off = F.exists("loose", lambda hole: lies(hole) & hole["cut_off"])
    placed = placed.withColumns(
        {"has_passed": passed, "is_loose": loose, "cut_off": F.coalesce(cut_off, F.lit(False))}
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
    return named.withColumns(
        {name: F.when(F.col("kind") == name, F.col("short")).otherwise(0) for name in KINDS}
    )


def in_stretches(
    rows: DataFrame, by: Iterable[str], belongs: Column, is_sure: Column, name: str
) -> DataFrame:
    """Add a column that tells whether a row is of a stretch of rows of which one is sure.

    A stretch are rows of the same ``by`` that belong to it, one after another by ``bucket_ms``.
    """
    in_order = Window.partitionBy(*by).orderBy("bucket_ms")
    ends = F.sum(F.when(belongs, 0).otherwise(1)).over(in_order)
    stretch = Window.partitionBy(*by, "stretch")
    is_one = F.max(belongs & is_sure).over(stretch)
    return rows.withColumn("stretch", ends).withColumn(name, belongs & is_one).drop("stretch")


def _side(
    rows: DataFrame, keys: list[str], tiers: tuple[str, ...], name: str, *beside: str
) -> DataFrame:
    """Add up one side: its tiers as columns, their sum, and the checksums of their records."""
    counts_in = F.col("tier").isin(*tiers)
    with_ids = F.col("id_xor").isNotNull() & F.col("id_sum").isNotNull()

    def only(column: str) -> Column:
        return F.when(counts_in & with_ids, F.col(column)).otherwise(0)

    def of(tier: str) -> Column:
        return F.sum(F.when(F.col("tier") == tier, F.col("count")).otherwise(0)).alias(tier)

    end = F.col("bucket_ms") + F.col("length_ms")
    came_ms = F.greatest(F.coalesce(F.unix_millis("written_at"), end), end)
    first = [F.min(F.col("offsets")[0][0]).alias("first_offset")] if name == "left" else []
    return rows.groupBy(*keys).agg(
        *map(of, (*tiers, *beside)),
        F.sum(F.when(counts_in, F.col("count")).otherwise(0)).alias(name),
        F.bit_xor(only("id_xor")).alias(f"{name}_xor"),
        signed64(F.sum(only("id_sum").cast("decimal(38,0)"))).alias(f"{name}_sum"),
        F.every(with_ids | ~counts_in | (F.col("count") == 0)).alias(f"{name}_ids"),
        F.every("fits").alias(f"{name}_fits"),
        F.max((F.col("origin") != "").cast("int")).alias(f"{name}_copied"),
        F.max("length_ms").alias(f"{name}_length_ms"),
        F.collect_set(F.floor(came_ms / 1000)).alias(f"{name}_s"),
        *first,
    )
