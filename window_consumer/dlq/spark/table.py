"""Turns the records of dead-letter topics into a table of dead letters.

It accepts our dead letters, and those of the formats in ``dlq.foreign``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql import types as T  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import to_arrow_schema

from window_consumer.dlq.spark.config import Reading
from window_consumer.dlq.spark.reader import MOST_JSON, rows_of
from window_consumer.dlq.spark.schema import DEAD_LETTERS
from window_consumer.model import headers as names
from window_consumer.spark.tables import LATEST_MS, utc_day

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
"""``DEAD_LETTERS`` with times as numbers, so that a time outside the calendar cannot fail a job."""


def judge(records: DataFrame) -> DataFrame:
    """Return records of dead-letter topics with ``reason``: null, or why they are unreadable.

    Takes the columns of Spark's Kafka source. Only records of a later version of this package are
    unreadable: anything else may be a dead letter.
    """
    ours = F.filter("headers", lambda each: each["key"] == names.FORMAT)
    form = F.when(F.size(ours) > 0, F.element_at(ours, -1)["value"].cast("string"))
    is_later = form.isNotNull() & (form != names.FORMAT_VERSION.decode())
    return records.withColumn(
        "reason", F.when(is_later, F.concat(F.lit("format "), F.substring(form, 1, 20)))
    )


def letters(readable: DataFrame, reading: Reading) -> DataFrame:
    """Return the dead letters of ``judge`` without a reason: ``DEAD_LETTERS``.

    One row per dead letter, with the fields of its headers. A failure time more than a year before
    the dead letter, or more than a day after it, is replaced by the time of the dead letter.
    """
    # Longer values are not parsed: one extra byte reveals them.
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
