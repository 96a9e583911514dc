"""The audit's report: the table of counts, what is found in it, and how long records took."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from attrs import frozen
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.model.errors import UsageError
from window_consumer.pipeline import snapshots
from window_consumer.pipeline.audit import effective
from window_consumer.pipeline.audit_explaining import explanation
from window_consumer.pipeline.audit_findings import Rules, findings
from window_consumer.pipeline.audit_latency import latencies
from window_consumer.pipeline.schemas import AUDIT_COUNTS, QUARANTINE

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
class Report:
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
) -> Report:
    """Return the report on counts, as ``AUDIT_COUNTS``; they are kept on disk meanwhile."""
    judged = _kept(effective(rows.drop(*_NOT_ASKED)))
    asked = (F.col("bucket_ms") + F.col("length_ms") > scope.since_ms) | (F.col("bucket_ms") == 0)
    found = findings(judged, rules, caught_up, held).where(asked)
    took = latencies(judged.where(asked))

    def explain(bucket_ms: int) -> DataFrame:
        return scope.of(explanation(judged, bucket_ms, grace_ms=rules.grace_ms))

    return Report(scope.of(found), scope.of(took), explain)


def _kept(rows: DataFrame) -> DataFrame:
    """Keep rows of which several things are asked, on disk: in memory they grow with the data."""
    # A checkpoint spares the planner the way that they came, which takes it longer than Spark the
    # rows. But blocks that are lost with an executor cannot be made again.
    is_here = (rows.sparkSession.sparkContext.master or "").startswith("local[")
    on_disk = StorageLevel.DISK_ONLY
    return rows.localCheckpoint(False, on_disk) if is_here else rows.persist(on_disk)
