"""The state and the finding of each bucket: pure, DataFrame to DataFrame.

The words come from ``audit.states``. A record with another possible explanation is never called
lost: a false alarm is worse than no statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.audit.spark.counts import sum64
from window_consumer.audit.spark.coverage import PLACE
from window_consumer.audit.spark.partition_totals import (
    CAME,
    GONE,
    KEYS,
    KINDS,
    LEFT,
    UNKNOWN,
    in_stretches,
    sides,
)
from window_consumer.audit.states import Finding, State

MOST_FOREIGN_BUCKETS: Final = 10
"""At this many surplus buckets, and half of all, a topic has an uncounted writer."""

_DAY_MS: Final = 86_400_000
FINDINGS: Final = (
    *KEYS,
    "length_ms",
    "state",
    "was_reopened",
    "finding",
    *CAME,
    *LEFT,
    "came",
    "left",
    UNKNOWN,
    GONE,
    "uncounted",
    "in_flight",
    "lost",
    "duplicated",
)


@frozen(kw_only=True)
class Rules:
    """How buckets are judged."""

    now_ms: int
    grace_ms: int
    """How long a bucket still takes counts after its end, or after its last count."""
    unaudited: Sequence[str] = ()
    """Topics with writers that do not count."""
    compacted: Sequence[str] = ()
    """Topics whose compaction may remove records before they are read."""
    knows_held: bool = True
    """Whether ``held`` has everything that was unfinished when the last count arrived. Otherwise
    nothing is called lost."""


def bucket_findings(
    judged: DataFrame,
    rules: Rules,
    caught_up: DataFrame | None = None,
    held: DataFrame | None = None,
) -> DataFrame:
    """Return the finding of each bucket, for each group: the columns of ``FINDINGS``.

    Takes rows of ``counts.effective``, replaced ones included. They are read several times, so
    cache them. ``caught_up`` and ``held`` as in ``sides.sides``. ``in_flight`` records are
    unfinished, or their counts have not arrived. ``gone`` are missing records that retention and
    the like explain. ``lost`` and ``duplicated`` are the least that explains the counts; ``lost``
    is 0 until a bucket is final.
    """
    # Asking takes a moment; planning for what is absent takes longer.
    [seen] = judged.agg(
        F.bool_or(F.col("tier") == GONE).alias("gone"), F.bool_or(F.col("lost") > 0).alias("lost")
    ).collect()
    by_partition = sides(
        judged, grace_ms=rules.grace_ms, caught_up=caught_up, held=held, has_gone=bool(seen.gone)
    )
    explained = _explained(_added(by_partition, rules), judged, rules, has_lost=bool(seen.lost))
    return _named(_audited(explained, rules), rules)[list(FINDINGS)]


def _added(by_partition: DataFrame, rules: Rules) -> DataFrame:
    """Add up partitions; ``anywhere`` was written to unknown partitions.

    ``counted_ms`` is when the last count arrived. ``was_reopened``: a count arrived after more than
    the grace period without one.
    """
    is_known = F.col("partition") >= 0
    has_ids = F.col("came_ids") & F.col("left_ids")
    differs = (F.col("came_xor") != F.col("left_xor")) | (F.col("came_sum") != F.col("left_sum"))
    is_other = is_known & has_ids & differs & (F.col("came") == F.col("left"))
    summed = [*CAME, *LEFT, UNKNOWN, "came", "left", "over", *KINDS]
    place = Window.partitionBy(*PLACE)
    # A writer that does not count causes no missing records. But its surplus may be in another
    # bucket than the one where they count.
    foreign = F.count_if(F.col("over") > 0).over(place)
    is_foreign = (foreign >= MOST_FOREIGN_BUCKETS) & (F.col("missing") <= F.max("over").over(place))
    by_partition = by_partition.withColumn(
        "sure", F.when(is_foreign, 0).otherwise(F.col("missing"))
    )

    seconds = F.array_sort(F.array_distinct(F.flatten(F.collect_list("seconds"))))
    gaps = F.zip_with(
        F.slice(seconds, 2, F.greatest(F.size(seconds) - 1, F.lit(0))),
        F.slice(seconds, 1, F.greatest(F.size(seconds) - 1, F.lit(0))),
        lambda later, earlier: (later - earlier) * 1000,
    )
    return by_partition.groupBy(*KEYS).agg(
        *[F.sum(name).alias(name) for name in (*summed, "sure")],
        F.sum(F.when(is_known, 0).otherwise(F.col("came"))).alias("anywhere"),
        F.sum(is_other.cast("int")).alias("others"),
        F.every(has_ids).alias("has_ids"),
        (
            (F.bit_xor("came_xor") == F.bit_xor("left_xor"))
            & (sum64(F.col("came_sum")) == sum64(F.col("left_sum")))
        ).alias("same_ids"),
        F.every(F.col("has_passed") | ~is_known).alias("has_passed"),
        F.every("fits").alias("fits"),
        F.max("length_ms").alias("length_ms"),
        (F.array_max(seconds) * 1000).alias("counted_ms"),
        F.exists(gaps, lambda gap: gap > rules.grace_ms).alias("was_reopened"),
    )


def _explained(added: DataFrame, judged: DataFrame, rules: Rules, *, has_lost: bool) -> DataFrame:
    """Divide differences into missing records and other explanations."""
    is_even = (F.col("came") == F.col("left")) & (F.col(UNKNOWN) == 0)
    is_same = is_even & F.col("has_ids") & F.col("same_ids")
    is_other = is_even & F.col("has_ids") & ~F.col("same_ids")
    # Records written to unknown partitions left through the partitions with a surplus.
    nowhere = F.greatest(F.col("anywhere") - F.col("over"), F.lit(0))
    others = F.when(F.col("anywhere") > 0, is_other.cast("int")).otherwise(F.col("others"))
    found = {
        "missing": F.col("missing") + F.when(F.col("has_passed"), nowhere).otherwise(0),
        "waiting": F.col("waiting") + F.when(F.col("has_passed"), 0).otherwise(nowhere),
        "over": F.greatest(F.col("over") - F.col("anywhere") - F.col(UNKNOWN), F.lit(0)),
        "exchanged": F.when(F.col(UNKNOWN) == 0, others).otherwise(0),
        **{name: F.col(name) for name in (GONE, "early", "uncounted", "sure")},
    }
    # The same records left, whatever partitions they were counted in.
    known = added.withColumns({k: F.when(is_same, 0).otherwise(v) for k, v in found.items()})
    is_compacted = F.col("topic").isin(*rules.compacted) if rules.compacted else F.lit(False)
    compacted = F.when(is_compacted, F.col("missing")).otherwise(0)
    known = known.withColumns(
        {GONE: F.col(GONE) + compacted, "missing": F.col("missing") - compacted}
    )
    return _without_unreported(known, judged) if has_lost else known


def _without_unreported(added: DataFrame, judged: DataFrame) -> DataFrame:
    """Move records from missing to uncounted if their counts could not be written.

    The next count reports only how many of the group's records these were. Each excuses one record
    within a day, in the nearest buckets first.
    """
    event = F.struct(F.col("bucket_ms").alias("at_ms"), F.col("lost").alias("count"))
    events = (
        judged.where("lost > 0 AND `group` != ''")
        .select("group", event.alias("event"))
        .groupBy("group")
        .agg(
            F.sum("event.count").cast("bigint").alias("unreported"),
            F.collect_list("event.at_ms").alias("reported_ms"),
        )
    )
    bucket = F.col("bucket_ms")
    away = F.array_min(F.transform("reported_ms", lambda at_ms: F.abs(at_ms - bucket)))
    near = added.join(F.broadcast(events), ["group"], "left").withColumn("away_ms", away)
    claim = F.when(F.col("away_ms") <= _DAY_MS, F.col("missing")).otherwise(0)
    nearest = Window.partitionBy("group").orderBy("away_ms", "topic", "bucket_ms")
    claimed = near.withColumn("claim", claim).withColumn("claimed", F.sum("claim").over(nearest))
    before = F.col("claimed") - F.col("claim")
    unreported = F.least("claimed", "unreported") - F.least(before, F.col("unreported"))
    unreported = F.when(F.col("claim") > 0, unreported).otherwise(0)
    return claimed.withColumns(
        {"uncounted": F.col("uncounted") + unreported, "missing": F.col("missing") - unreported}
    ).drop("unreported", "reported_ms", "away_ms", "claim", "claimed")


def _audited(timed: DataFrame, rules: Rules) -> DataFrame:
    """Add ``settled``, and ``unaudited`` if some writers cannot have counted.

    A bucket is unaudited if nobody counted; if more than twice as much left as was sent; if it has
    a surplus and adjoins such buckets (a writer began or stopped counting); or if half of a topic's
    buckets, and at least ``MOST_FOREIGN_BUCKETS``, have a surplus. The last rule excuses no bucket
    in which a partition lacks more than its largest surplus elsewhere.
    """
    sent = F.col("came") + F.col(UNKNOWN)
    topic = Window.partitionBy("topic")
    settled = timed.withColumn(
        "settled", (F.col("bucket_ms") > 0) & (F.col("counted_ms") + rules.grace_ms <= rules.now_ms)
    )
    listed = F.col("topic").isin(*rules.unaudited) if rules.unaudited else F.lit(False)
    never = F.max(sent).over(topic) == 0
    alone = F.col("settled") & (F.col("left") > 0) & (F.col("over") > sent)
    flagged = settled.withColumn("is_sure", listed | never | alone | ~F.col("fits"))
    is_over = (F.col("over") > 0) | F.col("is_sure")
    flagged = flagged.withColumn("is_over", is_over)
    by = ("topic", "group")
    stretched = in_stretches(flagged, by, F.col("is_over"), F.col("is_sure"), "nobody_counts")
    over = F.sum((F.col("settled") & (F.col("over") > 0)).cast("int")).over(topic)
    all_ = F.sum((F.col("settled") & (F.col("left") > 0)).cast("int")).over(topic)
    most = F.coalesce((over >= MOST_FOREIGN_BUCKETS) & (over * 2 >= all_), F.lit(False))
    sure = F.least("missing", F.when(F.col("settled"), F.col("sure")).otherwise(0))
    return stretched.withColumns(
        {
            "unaudited": F.col("nobody_counts") | (most & (sure == 0)),
            "missing": F.when(most, sure).otherwise(F.col("missing")),
            "over": F.when(most, 0).otherwise(F.col("over")),
        }
    )


def _named(known: DataFrame, rules: Rules) -> DataFrame:
    """Add ``state``, ``finding`` and their numbers."""
    counts = (F.col("group") != "") & ~F.col("unaudited")
    settled = F.col("settled")
    missing = F.col("missing") + F.col("exchanged")
    is_judged = settled & F.lit(rules.knows_held)
    numbers = known.withColumns(
        {
            "lost": F.when(counts & is_judged, missing).otherwise(0),
            "duplicated": F.when(counts, F.col("over") + F.col("exchanged")).otherwise(0),
            "in_flight": F.when(
                counts, F.col("waiting") + F.when(is_judged, 0).otherwise(F.col("missing"))
            ).otherwise(0),
        }
    )
    still_open = (F.col("bucket_ms") == 0) | (
        F.col("bucket_ms") + F.col("length_ms") > rules.now_ms
    )
    state = (
        F.when(still_open, str(State.OPEN))
        .when(settled, str(State.FINAL))
        .when(F.col("was_reopened"), str(State.REOPENED))
        .otherwise(str(State.CLOSING))
    )
    only_exchanged = (F.col("missing") == 0) & (F.col("over") == 0)
    finding = (
        F.when(F.col("unaudited"), str(Finding.UNAUDITED))
        .when(F.col("group") == "", str(Finding.NOT_CONSUMED))
        .when(
            F.col("lost") > 0,
            F.when(only_exchanged, str(Finding.EXCHANGED)).otherwise(str(Finding.LOST)),
        )
        .when(
            (F.col("in_flight") > 0) | (~settled & (F.col("duplicated") > 0)),
            str(Finding.IN_PROGRESS),
        )
        .when(F.col("uncounted") > 0, str(Finding.UNCOUNTED))
        .when(F.col("duplicated") > 0, str(Finding.DUPLICATED))
        .when(F.col(GONE) > 0, str(Finding.WITHIN_GONE))
        .when(F.col("early") > 0, str(Finding.BEFORE))
        .when(F.col("came") != F.col("left"), str(Finding.WITHIN_UNKNOWN))
        .otherwise(str(Finding.BALANCED))
    )
    return numbers.withColumn("state", state).withColumn("finding", finding)
