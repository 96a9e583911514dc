"""Turns dead letters into the figures of a report: groups, counts and examples.

Each function takes ``schema.DEAD_LETTERS`` or another function's result, and documents what it
returns; ``summary`` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.dlq.spark.findings import HOUR_MS

MOST_CAUSES: Final = 20
"""How many causes are listed individually."""

MOST_SHARES: Final = 12
"""How many values per dimension of a cause are kept; more for versions, to find deploys."""

MOST_VERSIONS: Final = 60
MOST_KEYS: Final = 10
MOST_EXAMPLES: Final = 3
"""Examples per cause: the latest ones and the first."""
ALL: Final = ""
"""The key of all causes together."""

OTHERS: Final = "others"  # cause names begin with = or -
"""The key of the causes that are not listed individually."""

_SIDE_COLUMNS: Final[Mapping[str, tuple[str, str | None]]] = {
    "reason": ("reason", None),
    "handler": ("handler", None),
    "version": ("app_version", "group"),
    "host": ("host", None),
    "partition": ("original_partition", "original_topic"),
    "group": ("group", None),
    "topic": ("original_topic", None),
    "dead_letters": ("topic", None),
    "by": ("written_by", None),
}


def with_cause(letters: DataFrame) -> DataFrame:
    """Return dead letters with ``cause``: the fingerprint, or a substitute.

    The substitute is reason and class, or without these, the writer.
    """
    stated = F.coalesce("reason", "error_class")
    known = F.concat_ws(
        " ", F.lit("-"), "reason", "error_class", F.when(stated.isNull(), F.col("written_by"))
    )
    return letters.withColumn("cause", F.coalesce(F.concat(F.lit("="), "fingerprint"), known))


def only(counted: DataFrame, chosen: Sequence[str]) -> DataFrame:
    """Return the rows with ``OTHERS`` in place of each cause that is not chosen."""
    cause = F.when(F.col("cause").isin(*chosen), F.col("cause")).otherwise(OTHERS)
    return counted.withColumn("cause", cause)


def facts(letters: DataFrame) -> DataFrame:
    """Return the number of dead letters for each cause, side and hour.

    Columns: cause, fingerprint, error_class, hour (whole hours since 1970, or null), one column for
    each side, count, again (how many of them had been put back before), put_back (how many were
    since), first_ms, last_ms. Takes dead letters ``with_cause``; without the column ``put_back``
    none were.
    """
    put_back = F.col("put_back") if "put_back" in letters.columns else F.lit(False)
    failed_ms = F.unix_millis("failed_at")
    sides = {column for pair in _SIDE_COLUMNS.values() for column in pair if column is not None}
    return (
        letters.withColumn("hour", F.floor(failed_ms / HOUR_MS))
        .groupBy("cause", "fingerprint", "error_class", "hour", *sorted(sides))
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.count(F.when(F.col("redrives") > 0, 1)).alias("again"),
            F.count(F.when(put_back, 1)).alias("put_back"),
            F.min(failed_ms).alias("first_ms"),
            F.max(failed_ms).alias("last_ms"),
        )
    )


def causes(of: DataFrame) -> DataFrame:
    """Return each cause of ``facts``.

    Columns: cause, fingerprint, error_class, count, again, put_back, first_ms, last_ms, latest_ms.
    At most ``MOST_EXAMPLES - 1`` of its dead letters failed after latest_ms.
    """
    latest = F.max_by("last_ms", "last_ms", MOST_EXAMPLES - 1)
    return of.groupBy("cause").agg(
        F.max("fingerprint").alias("fingerprint"),
        F.max_by("error_class", "last_ms").alias("error_class"),
        F.sum("again").alias("again"),
        F.sum("put_back").alias("put_back"),
        *_counted(),
        # Each is the time of a different dead letter.
        F.coalesce(F.get(latest, F.lit(MOST_EXAMPLES - 2)), F.min("first_ms")).alias("latest_ms"),
    )


def summary(of: DataFrame, most_causes: int = MOST_CAUSES) -> DataFrame:
    """Return one row about all ``causes``.

    Columns: distinct (the number of causes), count, again, put_back, first_ms, last_ms, and top:
    the ``most_causes`` most frequent ones, an array of rows of ``causes``.
    """
    place = F.struct("count", "cause")
    return of.agg(
        F.count(F.lit(1)).alias("distinct"),
        F.sum("again").alias("again"),
        F.sum("put_back").alias("put_back"),
        *_counted(),
        F.max_by(F.struct(*of.columns), place, most_causes).alias("top"),
    )


def sides(of: DataFrame) -> DataFrame:
    """Return the most frequent values of each side, for each cause and for all together.

    Columns: cause (``ALL`` for all together), side, value, of, count, first_ms, last_ms. Takes
    ``facts``.
    """
    pairs = F.array(
        *[
            F.struct(
                F.lit(side).alias("side"),
                F.col(column).cast("string").alias("value"),
                (F.lit(None) if owner is None else F.col(owner)).cast("string").alias("of"),
            )
            for side, (column, owner) in _SIDE_COLUMNS.items()
        ]
    )
    each = of.select(
        F.explode(F.array(F.lit(ALL), F.col("cause"))).alias("cause"),
        pairs.alias("pairs"),
        *("count", "first_ms", "last_ms"),
    ).select("cause", F.inline("pairs"), "count", "first_ms", "last_ms")
    counted = each.groupBy("cause", "side", "value", "of").agg(*_counted())
    place = F.row_number().over(
        Window.partitionBy("cause", "side").orderBy(F.desc("count"), "value", "of")
    )
    most = F.when(F.col("side") == "version", MOST_VERSIONS).otherwise(MOST_SHARES)
    return counted.withColumn("place", place).where(F.col("place") <= most).drop("place")


def periods(of: DataFrame, hours: int) -> DataFrame:
    """Return the number of failures in each period of ``hours`` hours.

    Columns: cause (also ``ALL``), begin_ms, count. Takes ``facts``. Rows without a time are left
    out.
    """
    begin = F.floor(F.col("hour") / hours) * hours * HOUR_MS
    return (
        of.where(F.col("hour").isNotNull())
        .select(
            F.explode(F.array(F.lit(ALL), F.col("cause"))).alias("cause"),
            begin.alias("begin_ms"),
            "count",
        )
        .groupBy("cause", "begin_ms")
        .agg(F.sum("count").alias("count"))
    )


def keys(letters: DataFrame) -> DataFrame:
    """Return how the keys of each cause, and of all together, are spread.

    Columns: cause (also ``ALL``), distinct (the number of keys), keyed (the number of dead letters
    with a key), top (the most frequent keys, an array of key and count). Takes dead letters
    ``with_cause``.
    """
    each = letters.where(F.col("key").isNotNull()).groupBy("cause", "key").count()
    both = each.select(
        F.explode(F.array(F.lit(ALL), F.col("cause"))).alias("cause"), "key", "count"
    )
    counted = both.groupBy("cause", "key").agg(F.sum("count").alias("count"))
    return counted.groupBy("cause").agg(
        F.count(F.lit(1)).alias("distinct"),
        F.sum("count").alias("keyed"),
        F.max_by(F.struct("key", "count"), F.struct("count", "key"), MOST_KEYS).alias("top"),
    )


def near_ends(letters: DataFrame, of: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return a smaller set of dead letters in which ``examples`` finds the same rows.

    Takes dead letters ``with_cause``, and the rows of the wanted ``causes``.
    """
    fails = [F.lit(False)]
    for row in of:
        cause = row["cause"]
        # Parquet can evaluate this without reading the rest of the row.
        is_it = F.col("fingerprint").isNull() & (F.col("cause") == cause)
        if row["fingerprint"] is not None:
            is_it = F.col("fingerprint") == row["fingerprint"]
        fails.append(is_it & _is_near(row["first_ms"], row["latest_ms"]))
    return letters.where(reduce(or_, fails))


def examples(letters: DataFrame) -> DataFrame:
    """Return the latest and the first dead letters of each cause, complete and with cause.

    Takes dead letters ``with_cause``. Nothing is sorted, because stacks are large.
    """
    whole = F.struct(*letters.columns)
    place = F.struct(
        F.coalesce(F.unix_millis("failed_at"), F.lit(0)), "topic", "partition", "offset"
    )
    ends = letters.groupBy("cause").agg(
        F.array_union(
            F.max_by(whole, place, MOST_EXAMPLES - 1), F.array(F.min_by(whole, place))
        ).alias("ends")
    )
    return ends.select(F.inline("ends"))


def _is_near(first_ms: int | None, latest_ms: int | None) -> Column:
    """Return whether a dead letter is among the earliest or the latest, or has no time."""
    failed_at, timeless = F.col("failed_at"), F.col("failed_at").isNull()
    if first_ms is None or latest_ms is None:
        return timeless
    is_first = failed_at < F.timestamp_millis(F.lit(first_ms + 1))
    return timeless | is_first | (failed_at >= F.timestamp_millis(F.lit(latest_ms)))


def _counted() -> list[Column]:
    return [
        F.sum("count").alias("count"),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
    ]
