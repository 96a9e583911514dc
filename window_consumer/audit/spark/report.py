"""The audit's report: counts, findings, latencies, and the records behind a difference."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from attrs import frozen
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.audit.count import SUB_BUCKETS, CountTier
from window_consumer.audit.spark.counts import effective
from window_consumer.audit.spark.coverage import PLACE, holes
from window_consumer.audit.spark.findings import Rules, bucket_findings
from window_consumer.audit.spark.partition_totals import UNKNOWN, aligned, sides
from window_consumer.audit.spark.schema import AUDIT_COUNTS
from window_consumer.model.errors import UsageError
from window_consumer.spark import snapshots
from window_consumer.spark.tables import QUARANTINE

QUANTILES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
LATENCIES: Final = ("topic", "group", "host", "count", *QUANTILES)
_KEYS: Final = ("topic", "group", "host")


def latencies(judged: DataFrame) -> DataFrame:
    """Return the latencies of finished records: the columns of ``LATENCIES``.

    Takes rows of ``counts.effective``, replaced ones included. There is a row for each ``topic``
    (of the first delivery, so retried records count there) and ``group``, with a null ``host``, and
    one more for each ``host``. Values are milliseconds, at most 12.5 % too small, see
    ``count.latency_bucket``. ``count`` is the number of records with a latency.
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
    """Return where a bucket begins, as ``count.latency_bounds`` does."""
    shift = F.greatest(F.lit(0), F.floor(bucket / SUB_BUCKETS) - 1)
    return ((bucket - shift * SUB_BUCKETS) * F.pow(F.lit(2), shift)).cast("bigint")


EXPLANATION: Final = (*PLACE, "came", "left", "missing", "counted", "unknown_ids")


def explanation(judged: DataFrame, bucket_ms: int, *, grace_ms: int) -> DataFrame:
    """Return where the records behind a bucket's difference lie: ``EXPLANATION``.

    Takes rows of ``counts.effective``, replaced ones included, and the start of a bucket. There is
    a row for each ``group``, ``topic`` and ``partition`` whose records differ. It has the numbers
    ``came`` and ``left``; runs of offsets (end exclusive) that nobody counted between counted ones
    (``missing``: contains the lost records that were ever in the log); runs that were counted in
    the bucket (``counted``: contains duplicates); and the known ids of unknown sends
    (``unknown_ids``).
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
"""How much further back counts are read, to find groups' progress and replaced counts."""

_NOT_ASKED: Final = ("app", "bytes", "without_timestamp", "skewed", "day")


class NoCountsError(UsageError):
    """The pipeline has not created the table of counts, or it is elsewhere."""

    code = "WC181"


@frozen(kw_only=True)
class Scope:
    """The subject of a report; empty filters match everything."""

    since_ms: int
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def of(self, rows: DataFrame) -> DataFrame:
        """Return the rows, with ``topic`` and ``group``, that match."""
        for name, chosen in (("topic", self.topics), ("group", self.groups)):
            if chosen:
                rows = rows.where(F.col(name).isin(*chosen))
        return rows


@frozen(eq=False)
class AuditReport:
    """Findings and latencies, computed on demand."""

    findings: DataFrame
    """See ``findings.findings``."""
    latencies: DataFrame
    """See ``latencies``."""
    explain: Callable[[int], DataFrame]
    """Takes the start of a bucket; see ``explanation``."""


def counts(session: SparkSession, path: str, since_ms: int) -> DataFrame:
    """Return counts of buckets since then and a day before, as ``AUDIT_COUNTS``.

    Counts of records without a timestamp are always included. Raises NoCountsError.
    """
    since = datetime.fromtimestamp(since_ms / 1000, UTC) - BEFORE
    taken = snapshots.of(session, path, AUDIT_COUNTS)
    if taken is None:
        raise NoCountsError(
            f"there is no table of counts at {path}: `window-consumer pipeline run audit` creates"
            " it, and so does a report without --no-refresh"
        )
    asked = (F.col("day") >= F.lit(since.date())) | (F.col("bucket_ms") == 0)
    return taken.rows.where(asked)


def quarantined(session: SparkSession, path: str, since_ms: int) -> DataFrame | None:
    """Return quarantined records of counts, written since then and a day before.

    The columns are ``tables.QUARANTINE``; None if there are none.
    """
    taken = snapshots.of(session, path, QUARANTINE, {"subject": "audit"})
    if taken is None or taken.is_empty:
        return None
    since = datetime.fromtimestamp(since_ms / 1000, UTC) - BEFORE
    found = taken.rows.where(F.col("written_at") >= F.lit(since)).cache()
    return None if found.isEmpty() else found


def places(rows: DataFrame, scope: Scope) -> DataFrame:
    """Return each counted ``topic`` and ``group``; the group of producers is empty."""
    return scope.of(rows.where("topic != ''").select("topic", "group").distinct())


def report(
    rows: DataFrame,
    rules: Rules,
    scope: Scope,
    caught_up: DataFrame | None = None,
    held: DataFrame | None = None,
) -> AuditReport:
    """Return the report on counts (``AUDIT_COUNTS``); they are kept on disk meanwhile."""
    judged = _kept(effective(rows.drop(*_NOT_ASKED)))
    asked = (F.col("bucket_ms") + F.col("length_ms") > scope.since_ms) | (F.col("bucket_ms") == 0)
    found = bucket_findings(judged, rules, caught_up, held).where(asked)
    took = latencies(judged.where(asked))

    def explain(bucket_ms: int) -> DataFrame:
        return scope.of(explanation(judged, bucket_ms, grace_ms=rules.grace_ms))

    return AuditReport(scope.of(found), scope.of(took), explain)


def _kept(rows: DataFrame) -> DataFrame:
    """Keep rows on disk that are read several times: in memory they grow with the data."""
    # A checkpoint spares the planner the lineage, which takes longer than processing the rows. But
    # blocks that are lost with an executor cannot be recomputed.
    is_here = (rows.sparkSession.sparkContext.master or "").startswith("local[")
    on_disk = StorageLevel.DISK_ONLY
    return rows.localCheckpoint(False, on_disk) if is_here else rows.persist(on_disk)
