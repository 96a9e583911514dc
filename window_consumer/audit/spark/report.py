"""The audit's report: counts, findings, latencies, and the records behind a difference."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from attrs import frozen
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.audit.count import (
    SUB_BUCKETS,
    CountTier,
)
from window_consumer.audit.spark.counts import effective
from window_consumer.audit.spark.coverage import PLACE, holes
from window_consumer.audit.spark.findings import Rules, findings
from window_consumer.audit.spark.schema import AUDIT_COUNTS
from window_consumer.audit.spark.sides import UNKNOWN, aligned, sides
from window_consumer.model.errors import UsageError
from window_consumer.spark import snapshots
from window_consumer.spark.schemas import QUARANTINE

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
    found = judged.where("NOT replaced").where(F.col("tier") == str(CountTier.FINISHED))
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


BEFORE: Final = timedelta(days=1)
"""So much further back counts are read: where groups stood, and what replaced what."""

_NOT_ASKED: Final = ("app", "bytes", "without_timestamp", "skewed", "day")


class NoCountsError(UsageError):
    """The pipeline has not made the table of counts yet, or it lies elsewhere."""


@frozen(kw_only=True)
class Scope:
    """What is asked for; what is empty does not matter."""

    since_ms: int
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def of(self, rows: DataFrame) -> DataFrame:
        """Return the rows, with ``topic`` and ``group``, that are asked for."""
        for name, chosen in (("topic", self.topics), ("group", self.groups)):
            if chosen:
                rows = rows.where(F.col(name).isin(*chosen))
        return rows


@frozen(eq=False)
class AuditReport:
    """What is found, and how long records took; both are computed when they are asked for."""

    findings: DataFrame
    """See ``audit_findings.findings``."""
    latencies: DataFrame
    """See ``audit_latency.latencies``."""
    explain: Callable[[int], DataFrame]
    """Of a bucket, given by its start; see ``audit_explaining.explanation``."""


def counts(session: SparkSession, path: str, since_ms: int) -> DataFrame:
    """Return the counts of buckets since then and a day before, as ``AUDIT_COUNTS``.

    Those of records without a timestamp are always among them. Raises NoCountsError.
    """
    since = datetime.fromtimestamp(since_ms / 1000, UTC) - BEFORE
    taken = snapshots.of(session, path, AUDIT_COUNTS)
    if taken is None:
        raise NoCountsError(
            f"there is no table of counts at {path}: `window-consumer pipeline run audit` makes it,"
            " and so does a report without --no-refresh"
        )
    asked = (F.col("day") >= F.lit(since.date())) | (F.col("bucket_ms") == 0)
    return taken.rows.where(asked)


def quarantined(session: SparkSession, path: str, since_ms: int) -> DataFrame | None:
    """Return the records of counts in quarantine, written since then and a day before.

    As ``schemas.QUARANTINE``; None where there are none.
    """
    taken = snapshots.of(session, path, QUARANTINE, {"subject": "audit"})
    if taken is None or taken.is_empty:
        return None
    since = datetime.fromtimestamp(since_ms / 1000, UTC) - BEFORE
    found = taken.rows.where(F.col("written_at") >= F.lit(since)).cache()
    return None if found.isEmpty() else found


def places(rows: DataFrame, scope: Scope) -> DataFrame:
    """Return each ``topic`` and ``group`` that was counted, an empty group for who wrote."""
    return scope.of(rows.where("topic != ''").select("topic", "group").distinct())


def report(
    rows: DataFrame,
    rules: Rules,
    scope: Scope,
    caught_up: DataFrame | None = None,
    held: DataFrame | None = None,
) -> AuditReport:
    """Return the report on counts, as ``AUDIT_COUNTS``; they are kept on disk meanwhile."""
    judged = _kept(effective(rows.drop(*_NOT_ASKED)))
    asked = (F.col("bucket_ms") + F.col("length_ms") > scope.since_ms) | (F.col("bucket_ms") == 0)
    found = findings(judged, rules, caught_up, held).where(asked)
    took = latencies(judged.where(asked))

    def explain(bucket_ms: int) -> DataFrame:
        return scope.of(explanation(judged, bucket_ms, grace_ms=rules.grace_ms))

    return AuditReport(scope.of(found), scope.of(took), explain)


def _kept(rows: DataFrame) -> DataFrame:
    """Keep rows of which several things are asked, on disk: in memory they grow with the data."""
    # A checkpoint spares the planner the way that they came, which takes it longer than Spark the
    # rows. But blocks that are lost with an executor cannot be made again.
    is_here = (rows.sparkSession.sparkContext.master or "").startswith("local[")
    on_disk = StorageLevel.DISK_ONLY
    return rows.localCheckpoint(False, on_disk) if is_here else rows.persist(on_disk)
