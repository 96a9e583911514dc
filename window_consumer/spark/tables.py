"""The tables: the common parts of their schemas, their layout, exactly-once writes, the quarantine.

A feature's own schema is in its ``spark/schema``. Unreadable records go to the quarantine with a
reason; nothing is dropped.

They are Delta tables, so that other programs can read them without Spark: the log defines the
table, whatever files a killed writer left behind.
"""

from __future__ import annotations

import time
from typing import Any, Final

from attrs import frozen
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql import types as T  # noqa: N812 - its usual name

from window_consumer.model.errors import UsageError
from window_consumer.spark.plan import PipelinePlan

VERSION: Final = 1
"""The version of all schemas; it increases when a table's columns change.

Changes only add columns: an older program reads the columns it knows, and a newer one reads missing
columns as null.
"""

LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the latest that all readers of the tables support."""

CORRUPT: Final = "_corrupt"
"""Where Spark puts text that does not fit its schema."""

QUARANTINE: Final = T.StructType(
    [
        T.StructField("subject", T.StringType()),
        T.StructField("reason", T.StringType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("written_at", T.TimestampType()),
        T.StructField("value", T.BinaryType()),
    ]
)
"""Unreadable records and the reasons; ``value`` has at most 1 MiB of the record's value."""

MOST_BYTES: Final = 1024**2
"""The most bytes of an unreadable record's value that are kept."""

_TRIES: Final = 20
_AGAIN_S: Final = 0.5
_HALF_MADE: Final = ("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "DELTA_MISSING_DELTA_TABLE")
"""Delta's errors if a table's log has no version yet, or its directory has other files."""

_VERSION: Final = "window_consumer.version"
"""The table property with the schema version that created the table."""


class NewerTableError(UsageError):
    """A table was written by a later version of the package."""

    code = "WC179"


@frozen
class Table:
    """One table's layout."""

    name: str
    schema: T.StructType
    partitioned_by: tuple[str, ...] = ()
    sorted_by: tuple[str, ...] = ()
    """The order within each file, so that a lookup of one value reads few pages."""
    looked_up_by: tuple[str, ...] = ()
    """Columns that get a bloom filter."""

    @property
    def layout(self) -> dict[str, str]:
        """Parquet properties for its files."""
        return {f"parquet.bloom.filter.enabled#{name}": "true" for name in self.looked_up_by}

    def make(self, session: SparkSession, plan: PipelinePlan) -> str:
        """Return the table's path; create it if it is missing. Raises NewerTableError."""
        path = plan.table(self.name)
        columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in self.schema)
        laid_out = f"PARTITIONED BY ({', '.join(self.partitioned_by)})"
        # Without Spark, readers would see rows that are only marked as deleted.
        properties = {_VERSION: str(VERSION), "delta.enableDeletionVectors": "false"}
        if self.sorted_by:
            properties["delta.dataSkippingStatsColumns"] = ",".join(self.sorted_by)
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        create = (
            f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({columns}) USING delta"
            f" {laid_out if self.partitioned_by else ''} TBLPROPERTIES ({listed})"
        )
        for left in range(_TRIES, -1, -1):
            try:
                session.sql(create)
                rows = session.sql(f"SHOW TBLPROPERTIES delta.`{path}`").collect()
                break
            except Exception as error:
                half_made = any(sign in str(error) for sign in _HALF_MADE)
                if not left or not (half_made or is_conflict(error)):
                    raise
                time.sleep(_AGAIN_S)  # another process is creating it
        found = {row["key"]: row["value"] for row in rows}
        if int(found.get(_VERSION, VERSION)) > VERSION:
            raise NewerTableError(
                f"{path} was written by a newer window_consumer (tables of version"
                f" {found[_VERSION]}, this one supports {VERSION}): update this installation"
            )
        return path

    def append(self, rows: DataFrame, path: str, writer: str, batch: int) -> None:
        """Append rows, once per batch number, however often it is retried."""
        if self.sorted_by:
            rows = rows.repartition(*self.partitioned_by).sortWithinPartitions(
                *self.partitioned_by, *self.sorted_by
            )
        write = (
            rows.write.format("delta")
            .mode("append")
            .option("mergeSchema", "true")
            .option("txnAppId", writer)
            .option("txnVersion", str(batch))
        )
        write.options(**self.layout).save(path)


def utc_day(time: str, units_per_s: int) -> Column:
    """Return the UTC day of a time, whatever the session's time zone.

    ``time`` is a column of integers since 1970. Spark's own dates are in the session's zone.
    """
    per_day = 86_400 * units_per_s
    days = f"CAST(({time} - pmod({time}, {per_day}L)) DIV {per_day}L AS INT)"
    return F.expr(f"date_from_unix_date({days})")


def is_conflict(error: Exception) -> bool:
    """Return whether another process made a conflicting change to the table."""
    return any(sign in str(error) for sign in _CONFLICTS)


_CONFLICTS: Final = ("DELTA_CONCURRENT", "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED")


def last_batch(session: SparkSession, path: str, writer: str) -> int | None:
    """Return a writer's last batch number in a table, None before the first.

    It comes from this session's latest snapshot of the table.
    """
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark has no other way to Delta's log
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)  # noqa: SLF001 - as above
    found = log.unsafeVolatileSnapshot().transactions().get(writer)
    return int(found.get()) if found.isDefined() else None


BROKEN: Final = Table("quarantine", QUARANTINE, partitioned_by=("subject",))


def readable(judged: DataFrame) -> DataFrame:
    """Return the records without a ``reason``."""
    return judged.where(F.col("reason").isNull())


def quarantined(judged: DataFrame, subject: str) -> DataFrame:
    """Return the records with a ``reason``, as ``QUARANTINE``; deterministic.

    Takes the columns of Spark's Kafka source and ``reason``.
    """
    return judged.where(F.col("reason").isNotNull()).select(
        F.lit(subject).alias("subject"),
        "reason",
        "topic",
        "partition",
        "offset",
        F.col("timestamp").alias("written_at"),
        F.substring("value", 1, MOST_BYTES).alias("value"),
    )[[each.name for each in QUARANTINE]]
