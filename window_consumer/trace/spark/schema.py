"""The schemas of the trace: a record of its topic, and the table of events."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T  # noqa: N812 - its usual name

from window_consumer.spark.tables import CORRUPT, Table
from window_consumer.trace.event import FIELDS, EventField

_KINDS: Final[dict[type, T.DataType]] = {
    str: T.StringType(),
    int: T.LongType(),
    float: T.DoubleType(),
}

CARRIED: Final[tuple[EventField, ...]] = tuple(each for each in FIELDS if each.name != "event_id")
"""The event fields that a batch carries; the event id follows from the batch."""


def type_of(field: EventField) -> T.DataType:
    """Return the Spark type of an event's field."""
    return _KINDS[field.kind]


def _column(field: EventField) -> T.StructType:
    return T.StructType(
        [
            T.StructField("v", T.ArrayType(type_of(field))),
            T.StructField("n", T.ArrayType(T.LongType())),
            T.StructField("up", T.BooleanType()),
        ]
    )


TRACE_BATCH: Final = T.StructType(
    [
        T.StructField("format", T.LongType()),
        T.StructField("writer", T.StringType()),
        T.StructField("sequence", T.LongType()),
        T.StructField("count", T.LongType()),
        T.StructField("all", T.StructType([T.StructField(f.name, type_of(f)) for f in CARRIED])),
        T.StructField(
            "columns", T.StructType([T.StructField(f.name, _column(f)) for f in CARRIED])
        ),
        T.StructField(CORRUPT, T.StringType()),
    ]
)
"""A record of the trace topic, see docs/wire-telemetry.md."""

TRACE_EVENTS: Final = T.StructType(
    [T.StructField(each.name, type_of(each)) for each in FIELDS]
    + [T.StructField("day", T.DateType()), T.StructField("bucket", T.IntegerType())]
)
"""The table of trace events, one row each: ``day`` (of its time) and ``bucket`` (of its root's id),
which partition the table, and the fields of ``TraceEvent``."""

TRACE: Final = Table(
    "trace",
    TRACE_EVENTS,
    partitioned_by=("day", "bucket"),
    sorted_by=("root_id", "time_us"),
    looked_up_by=("record_id", "root_id", "key"),
)
