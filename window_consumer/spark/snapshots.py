"""Current snapshots of tables, for queries of seconds: Spark reads the files that the log names.

Spark's Delta reader reads the log again for each query, with Spark jobs. If the log can be read
without Spark, it is read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructType

from window_consumer.spark.plan import GENERATION, writer_of

_MISSING: Final = ("DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "PATH_NOT_FOUND")
_PATTERNS: Final = frozenset("{}[]*?\\")
"""Characters in a file name that Spark would treat as a pattern."""

_ALL: Mapping[str, str] = {}


@frozen
class TableSnapshot:
    """A table's rows, and the time of its last change."""

    rows: DataFrame
    """With all columns of the table's schema; columns missing in an older version are null."""
    changed_ms: int
    is_empty: bool
    """True if the log alone shows that there are no rows."""


def of(
    session: SparkSession, path: str, schema: StructType, where: Mapping[str, str] = _ALL
) -> TableSnapshot | None:
    """Return the current snapshot of a table; None if it was not created yet.

    ``where`` selects rows by values of partition columns.
    """
    if "://" in path or _PATTERNS & set(path):
        return _by_spark(session, path, schema, where)
    try:
        log = DeltaTable(path)
    except TableNotFoundError:
        return None
    files = _names(log, path, where)
    changed_ms = log.history(1)[0]["timestamp"]
    if not files:
        return TableSnapshot(session.createDataFrame([], schema), changed_ms, is_empty=True)
    read = session.read.schema(schema).option("basePath", path)
    rows = _only(read.parquet(*files), where)
    return TableSnapshot(rows.select(*schema.names), changed_ms, is_empty=False)


def may_repeat(path: str, job: str) -> bool:
    """Return whether a table may have Kafka records twice because its job was restarted."""
    if "://" in path or _PATTERNS & set(path):
        return True
    return (DeltaTable(path).transaction_version(writer_of(job)) or 0) >= GENERATION


def _names(log: DeltaTable, path: str, where: Mapping[str, str]) -> Sequence[str]:
    """Return the table's file names; their URIs have %20 for a space."""
    chosen = [(column, "=", value) for column, value in where.items()]
    root = log.table_uri.rstrip("/").removeprefix("file://")
    files = log.file_uris(file_pruning_predicate=chosen or None)
    return [path + each.removeprefix("file://")[len(root) :] for each in files]


def _by_spark(
    session: SparkSession, path: str, schema: StructType, where: Mapping[str, str]
) -> TableSnapshot | None:
    try:
        rows = session.read.format("delta").load(path)
    except AnalysisException as error:
        if (error.getCondition() or "").startswith(_MISSING):
            return None
        raise
    columns = [
        F.col(each.name) if each.name in rows.columns else F.lit(None).cast(each.dataType)
        for each in schema
    ]
    named = [column.alias(name) for column, name in zip(columns, schema.names, strict=True)]
    (change,) = (
        session.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1")
        .select(F.unix_millis("timestamp").alias("at"))
        .collect()
    )
    return TableSnapshot(_only(rows, where).select(*named), change["at"], is_empty=False)


def _only(rows: DataFrame, where: Mapping[str, str]) -> DataFrame:
    for column, value in where.items():
        rows = rows.where(F.col(column) == value)
    return rows
