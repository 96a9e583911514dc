"""The tables: where each lies, how it is laid out, and how it is written exactly once.

Delta, because others than Spark read them: a table is what its log says, whatever files a writer
that was killed has left behind.
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
from window_consumer.spark.schemas import (
    QUARANTINE,
    VERSION,
)

_TRIES: Final = 20
_AGAIN_S: Final = 0.5
_HALF_MADE: Final = ("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "DELTA_MISSING_DELTA_TABLE")
"""What Delta says where the log of a table is a directory, and no version of it is there yet; and
where other files are."""

_VERSION: Final = "window_consumer.version"
"""The table property that tells by which version of the schemas a table was made."""


class NewerTableError(UsageError):
    """A table was written by a later version of the package."""


@frozen
class Table:
    """One table's layout."""

    name: str
    schema: T.StructType
    partitioned_by: tuple[str, ...] = ()
    sorted_by: tuple[str, ...] = ()
    """Within each file: who looks for one value reads few of its pages."""
    looked_up_by: tuple[str, ...] = ()
    """Columns that get a bloom filter."""

    @property
    def layout(self) -> dict[str, str]:
        """How its files are written, as properties of Parquet."""
        return {f"parquet.bloom.filter.enabled#{name}": "true" for name in self.looked_up_by}

    def make(self, session: SparkSession, plan: PipelinePlan) -> str:
        """Return where it lies, after making it if it is missing; raises NewerTableError."""
        path = plan.table(self.name)
        columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in self.schema)
        laid_out = f"PARTITIONED BY ({', '.join(self.partitioned_by)})"
        # Who reads the files without Spark would see rows that are only marked as deleted.
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
                time.sleep(_AGAIN_S)  # somebody else makes it
        found = {row["key"]: row["value"] for row in rows}
        if int(found.get(_VERSION, VERSION)) > VERSION:
            raise NewerTableError(
                f"{path} was written by a later version of window_consumer (its tables have version"
                f" {found[_VERSION]}, known is {VERSION}): update this one"
            )
        return path

    def append(self, rows: DataFrame, path: str, writer: str, batch: int) -> None:
        """Append rows, once for each number of a batch, however often it is tried."""
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
    """Return the day of a time in UTC, whatever time zone the session has.

    ``time`` is a column of integers since 1970. Spark's own dates are those of the session.
    """
    per_day = 86_400 * units_per_s
    days = f"CAST(({time} - pmod({time}, {per_day}L)) DIV {per_day}L AS INT)"
    return F.expr(f"date_from_unix_date({days})")


def is_conflict(error: Exception) -> bool:
    """Tell whether somebody else has written to the table meanwhile what does not go with it."""
    return any(sign in str(error) for sign in _CONFLICTS)


_CONFLICTS: Final = ("DELTA_CONCURRENT", "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED")


def last_batch(session: SparkSession, path: str, writer: str) -> int | None:
    """Return the number of the last batch that a table has of a writer, None before the first.

    As of when this session has looked at the table last.
    """
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark has no other way to Delta's log
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)  # noqa: SLF001 - as above
    found = log.unsafeVolatileSnapshot().transactions().get(writer)
    return int(found.get()) if found.isDefined() else None


BROKEN: Final = Table("quarantine", QUARANTINE, partitioned_by=("subject",))
