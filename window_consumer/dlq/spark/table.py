"""From the records of dead-letter topics to a table of dead letters: DataFrame to DataFrame.

Whoever wrote them: ours, and those that ``model.foreign_dead_letters`` knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql import types as T  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import to_arrow_schema

from window_consumer.dlq.spark.reader import (
    MOST_JSON,
    rows_of,
)
from window_consumer.dlq.spark.schema import DEAD_LETTERS
from window_consumer.model import headers as names
from window_consumer.spark.plan import Reading
from window_consumer.spark.schemas import LATEST_MS
from window_consumer.spark.tables import utc_day

if TYPE_CHECKING:
    import pyarrow as pa

_TIMES: Final = tuple(
    each.name.removesuffix("_at")
    for each in DEAD_LETTERS
    if isinstance(each.dataType, T.TimestampType)
)
_READ: Final = T.StructType(
    [
        T.StructField(f"{each.name.removesuffix('_at')}_ms", T.LongType())
        if isinstance(each.dataType, T.TimestampType)
        else each
        for each in DEAD_LETTERS
        if each.name != "day"
    ]
)
"""``DEAD_LETTERS`` with times as numbers: those that no calendar knows do not stop a job."""


def judge(records: DataFrame) -> DataFrame:
    """Return records of dead-letter topics with ``reason``: null, or why they cannot be read.

    Takes the columns of Spark's Kafka source. Only what a later version of this package wrote
    cannot be read: whatever else there is may be somebody's dead letter.
    """
    ours = F.filter("headers", lambda each: each["key"] == names.FORMAT)
    form = F.when(F.size(ours) > 0, F.element_at(ours, -1)["value"].cast("string"))
    is_later = form.isNotNull() & (form != names.FORMAT_VERSION.decode())
    return records.withColumn(
        "reason", F.when(is_later, F.concat(F.lit("format "), F.substring(form, 1, 20)))
    )


def letters(readable: DataFrame, reading: Reading) -> DataFrame:
    """Return the dead letters of records of ``judge`` without a reason: ``DEAD_LETTERS``.

    A row a dead letter, with what its headers tell. A failure whose time lies more than a year
    before its dead letter, or a day after it, is told with the time of the dead letter.
    """
    # What is longer is not looked into: one byte more than that tells.
    value = F.substring("value", 1, MOST_JSON + 1)
    if not reading.needs_values:
        value = F.lit(None).cast("binary")
    records = readable.select(
        "topic",
        "partition",
        "offset",
        F.when(F.col("timestampType") >= 0, F.unix_millis("timestamp")).alias("written_ms"),
        "key",
        value.alias("value"),
        F.length("value").cast("long").alias("value_bytes"),
        F.coalesce("headers", F.array().cast(readable.schema["headers"].dataType)).alias("headers"),
    )
    schema = to_arrow_schema(_READ)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rows_of(batches, reading, schema)

    found = records.mapInArrow(read, _READ)
    for name in _TIMES:
        number = F.col(f"{name}_ms")
        known = F.when(number <= LATEST_MS, number)
        found = found.withColumn(f"{name}_at", F.timestamp_millis(known))
    return found.withColumn("day", utc_day("unix_millis(failed_at)", 1000))[
        [each.name for each in DEAD_LETTERS]
    ]
