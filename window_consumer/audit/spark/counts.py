"""From the records of the audit topic to counts, each once: pure, DataFrame to DataFrame.

``audit.balance`` defines in memory which counts are effective; a test compares the two over random
histories. ``partition_totals`` has the balance.
"""

from __future__ import annotations

import re
from typing import Final

import attrs
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.audit.count import FORMAT, AuditCount, CountTier
from window_consumer.audit.spark.schema import AUDIT_COUNTS, AUDIT_RECORD
from window_consumer.spark.tables import CORRUPT, LATEST_MS, utc_day

ID: Final = ("client", "incarnation", "sequence")
"""The identity of a count, to find repeats."""

UNREAD_CAME: Final = "unread_came"
UNREAD_LEFT: Final = "unread_left"
"""Placeholders for a tier: counts in quarantine, see ``unread``."""

_PLACE: Final = ("group", "topic", "partition")
_EPOCH: Final = ("epoch_ms", "client", "incarnation")
_STRETCH: Final = 100_000
"""Offsets per stretch. Ranges are compared by the stretches they touch."""

_LOW: Final = 0xFFFF_FFFF

_MOST: Final = 10**12
"""The most records, or milliseconds of bucket length, in one credible count. Then sums fit in a
long, whatever else is written to the topic.
"""

_MOST_OFFSETS: Final = 10**10
"""The most offsets in one range, because each of its stretches becomes a row. Holes from
compaction also count.
"""

_DEFAULTS: Final = {
    each.name: each.default
    for each in attrs.fields(AuditCount)
    if isinstance(each.default, str | int | bool)
}
_NEEDED: Final = [each.name for each in attrs.fields(AuditCount) if each.default is attrs.NOTHING]
_TIERS: Final = [str(tier) for tier in CountTier]
_KEYS: Final = ["topic", "bucket_ms", "group"]


def read(records: DataFrame) -> DataFrame:
    """Return records of the audit topic with ``content``, and a ``reason`` to reject each bad one.

    Takes the columns of Spark's Kafka source, and keeps them.
    """
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = F.col("value").cast("string")
    judged = records.withColumn("content", F.from_json(text, AUDIT_RECORD, options))
    content = F.col("content")
    counts = content["counts"]

    def lacks(count: Column) -> Column:
        missing = ~count["tier"].isin(_TIERS)
        for name in _NEEDED:
            missing |= count[name].isNull()
        return count.isNull() | F.coalesce(missing, F.lit(True))

    reason = (
        F.when(content.isNull() | content[CORRUPT].isNotNull(), "malformed")
        .when(content["format"].isNull() | counts.isNull(), "malformed")
        .when(content["format"] != FORMAT, F.concat(F.lit("format "), content["format"]))
        .when(F.exists(counts, lacks), "a count without what it needs")
        .when(~F.expr(f"forall(content.counts, c -> {_IS_BELIEVED})"), "a number that cannot be")
    )
    return judged.withColumn("reason", reason)


def _lies_in(value: str, most: int = _MOST) -> str:
    return f"coalesce({value} BETWEEN 0 AND {most}, true)"


_IS_RANGE: Final = (
    "size(range) = 2 AND get(range, 0) >= 0"
    f" AND try_subtract(get(range, 1), get(range, 0)) BETWEEN 0 AND {_MOST_OFFSETS}"
)
_NUMBERS: Final = ("count", "without_timestamp", "skewed", "lost", "length_ms")
_IS_BELIEVED_ALONE: Final = " AND ".join(
    [
        *[_lies_in(name) for name in _NUMBERS],
        _lies_in("bytes", _MOST * 1000),
        f"coalesce(forall(map_values(latency), n -> {_lies_in('n')}), true)",
        f"coalesce(forall(offsets, range -> coalesce({_IS_RANGE}, false)), true)",
    ]
)
"""The test of one count, by its fields."""
_IS_BELIEVED: Final = re.sub(
    rf"\b({'|'.join((*_NUMBERS, 'bytes', 'latency', 'offsets'))})\b", r"c.\1", _IS_BELIEVED_ALONE
)


def counts(readable: DataFrame) -> DataFrame:
    """Return the counts in records of ``read`` without a reason, as ``AUDIT_COUNTS``.

    A timestamp outside the range of milliseconds comes from a producer with another unit. Its
    records are counted with those without a timestamp, in bucket 0.
    """
    rows = readable.select(
        F.explode("content.counts").alias("count"), F.col("timestamp").alias("written_at")
    ).select("count.*", "written_at")
    rows = rows.fillna({key: value for key, value in _DEFAULTS.items() if key in rows.columns})
    rows = rows.withColumn(
        "bucket_ms",
        F.when(F.col("bucket_ms").between(0, LATEST_MS), F.col("bucket_ms")).otherwise(0),
    )
    return rows.withColumn("day", utc_day("bucket_ms", 1000))[[each.name for each in AUDIT_COUNTS]]


def unread(quarantined: DataFrame) -> DataFrame:
    """Return the readable counts of records in quarantine, as ``AUDIT_COUNTS``.

    Takes ``tables.QUARANTINE``. Whatever its tier, only the side of the balance is certain: a
    count with offsets was read (``UNREAD_LEFT``), any other was written (``UNREAD_CAME``).
    """
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    content = F.from_json(F.col("value").cast("string"), AUDIT_RECORD, options)
    read = quarantined.select(content.alias("content"), F.col("written_at").alias("timestamp"))
    was_read = F.size(F.coalesce("offsets", F.array())) > 0
    known = f"{_IS_BELIEVED_ALONE} AND " + " AND ".join(
        f"`{name}` IS NOT NULL" for name in _NEEDED if name != "tier"
    )
    return (
        counts(read)
        .where(known)
        .withColumns(
            {
                "tier": F.when(was_read, UNREAD_LEFT).otherwise(UNREAD_CAME),
                # It is also unknown whether they are the same records.
                "id_xor": F.lit(None).cast("bigint"),
                "lost": F.lit(0).cast("bigint"),
            }
        )
    )


def effective(rows: DataFrame) -> DataFrame:
    """Return each count once, with ``replaced``: a later epoch shares an offset with it.

    Takes and returns ``AUDIT_COUNTS``, in any order and with repeats. Of repeats the first one
    stays.
    """
    as_sent = Window.partitionBy(*ID[::-1]).orderBy("written_at")
    # dropDuplicates would buffer so many values that Spark sorts the rows twice.
    came_before = F.lag("sequence").over(as_sent).isNotNull()
    once = rows.withColumn("came_before", came_before).where("NOT came_before").drop("came_before")
    gone = F.broadcast(_replaced(rows).withColumn("replaced", F.lit(True)))
    marked = once.join(gone, list(ID), "left")
    return marked.withColumn("replaced", F.coalesce("replaced", F.lit(False)))


def _replaced(rows: DataFrame) -> DataFrame:
    """Return the ``ID`` of each count that shares an offset with a later epoch."""
    epoch = F.struct(*_EPOCH).alias("epoch")
    ranges = rows.where(F.size("offsets") > 0).select(
        *_PLACE, "topic_hash", *ID, epoch, F.explode("offsets").alias("range")
    )
    first, stop = F.col("range")[0], F.col("range")[1]
    stretches = F.sequence(F.floor(first / _STRETCH), F.floor((stop - 1) / _STRETCH))
    pieces = ranges.where(first < stop).withColumn("stretch", F.explode(stretches))
    by = [*_PLACE, "stretch"]
    # Hashes instead of epochs: Spark aggregates fixed-size values by hash, others by sorting.
    number = F.xxhash64("epoch")
    several = F.min(number) < F.max(number)
    contested = pieces.groupBy(*by).agg(several.alias("several")).where("several").select(*by)
    mine = pieces.join(F.broadcast(contested), by, "left_semi")
    return _overlapped_by_later(mine, by).select(*ID).distinct()


def _overlapped_by_later(mine: DataFrame, by: list[str]) -> DataFrame:
    """Return the rows, with ``range`` and ``topic_hash``, that overlap one of a later ``epoch``.

    A sweep for each bit of the epochs' ranks. Two ranks first differ in one bit: the later one has
    1 there, the earlier one 0, and their higher bits (``node``) are equal. So one sweep per node,
    by offset, suffices: among later ranges that begin before an earlier range stops, one overlaps
    it if the farthest stop lies beyond its first offset. This needs no pairs, however many ranges
    and epochs overlap.
    """
    ranked = mine.withColumn("rank", F.dense_rank().over(Window.partitionBy(*by).orderBy("epoch")))
    ranked = ranked.withColumn("last", F.max("rank").over(Window.partitionBy(*by)))
    bits = F.sequence(F.lit(0), F.floor(F.log2("last")).cast("int"))
    bit = F.col("bit")
    first, stop = F.col("range")[0], F.col("range")[1]
    is_later = F.expr("shiftright(rank, bit) & 1 = 1")
    swept = ranked.withColumn("bit", F.explode(bits)).withColumns(
        {
            "node": F.expr("shiftright(rank, bit + 1)"),
            "is_later": is_later,
            "at": F.when(is_later, first).otherwise(stop),
            "reach": F.when(is_later, stop),
        }
    )
    node = Window.partitionBy(*by, bit, "node").orderBy("at", "is_later")
    same = Window.partitionBy(*by, bit, "node", "topic_hash").orderBy("at", "is_later")
    anyhow = F.col("topic_hash") == 0
    # A hash of 0 (the id could not be read) may mean any topic of that name.
    reached = F.when(anyhow, F.max("reach").over(node)).otherwise(
        F.greatest(F.max("reach").over(same), F.max(F.when(anyhow, F.col("reach"))).over(node))
    )
    return swept.withColumn("reached", reached).where("NOT is_later AND reached > range[0]")


def sum64(column: Column) -> Column:
    """Return the low 64 bits of the sum of a group's numbers, as a signed number."""
    # Halves do not overflow below 2^31 rows. Decimals would be objects, and slow.
    low, high = F.sum(column.bitwiseAND(_LOW)), F.sum(F.shiftright(column, 32))
    carried = F.shiftleft(high + F.shiftright(low, 32), 32)
    return carried.bitwiseOR(low.bitwiseAND(_LOW))
