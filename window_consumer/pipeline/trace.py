"""From the records of the trace topic to a table of events: pure, DataFrame to DataFrame.

No function of Python's runs for a record: Spark's own take the batches apart.
"""

from __future__ import annotations

from typing import Final

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql import types as T  # noqa: N812 - its usual name

from window_consumer.model.trace_batch import FORMAT
from window_consumer.model.trace_event import Field, TraceEvent
from window_consumer.pipeline.plan import BUCKETS
from window_consumer.pipeline.schemas import CARRIED, CORRUPT, TRACE_BATCH, TRACE_EVENTS, type_of

MOST_EVENTS: Final = 1_000_000
"""In one batch: writers have some 10,000 at most. What says more is taken for broken."""

AHEAD_DAYS: Final = 1
"""An event so much later than its Kafka record was written by a clock that is wrong ..."""

BEHIND_DAYS: Final = 366
"""... and one so much earlier. A spool may have waited for long before it was shipped."""

_DEFAULTS: Final = {
    each.name: each.default
    for each in attrs.fields(TraceEvent)
    if each.default is not attrs.NOTHING
}
_NEEDED: Final = [each for each in CARRIED if each.name not in _DEFAULTS]
_DAY_US: Final = 86_400_000_000
_PLACE: Final = ("topic", "partition", "offset")


def read(records: DataFrame) -> DataFrame:
    """Return records of the trace topic with ``batch``, and ``reason`` where that is none.

    Takes the columns of Spark's Kafka source (``value``, ``timestamp`` and others, which stay).
    ``batch`` is a ``schemas.TRACE_BATCH``, ``columns`` its columns as one array of events.
    """
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = records.withColumn("batch", F.from_json(text, TRACE_BATCH, options))
    batch = F.col("batch")
    columns = batch["columns"]
    fits, whole = F.lit(True), F.lit(True)
    for each in CARRIED:
        column = columns[each.name]
        fits &= column.isNull() | F.coalesce(_length(column) == batch["count"], F.lit(False))
    for each in _NEEDED:
        values = columns[each.name]["v"]
        each_has_one = values.isNotNull() & ~F.exists(values, F.isnull)
        whole &= each_has_one | batch["all"][each.name].isNotNull()
    lies_within = F.coalesce(_times_lie_near(), F.lit(True))
    reason = (
        F.when(batch.isNull() | batch[CORRUPT].isNotNull(), "malformed")
        .when(batch["format"].isNull(), "malformed")
        .when(batch["format"] != FORMAT, F.concat(F.lit("format "), batch["format"]))
        .when(
            batch["writer"].isNull() | batch["sequence"].isNull() | batch["count"].isNull(),
            "malformed",
        )
        .when(~batch["count"].between(1, MOST_EVENTS), "malformed")
        .when(~fits, "columns of another length")
        .when(~whole, "events without what they need")
        .when(~lies_within, "skewed clock")
    )
    return parsed.withColumn("reason", reason)


def events(readable: DataFrame) -> DataFrame:
    """Return the events of the batches of ``read`` that have no reason: ``TRACE_EVENTS``.

    A row an event, with the fields of ``model.trace_event.TraceEvent`` and ``day`` and ``bucket``,
    by which the table is laid out. What an event leaves out because it follows is filled in.
    """
    batch = F.col("batch")
    index = F.sequence(F.lit(0), (batch["count"] - 1).cast("int"))
    columns = [F.coalesce(_values(each), _nothing(each)).alias(each.name) for each in CARRIED]
    rows = readable.select(
        batch["writer"].alias("_writer"),
        batch["sequence"].alias("_sequence"),
        batch["all"].alias("_all"),
        F.explode(F.arrays_zip(index.alias("_index"), *columns)).alias("_event"),
    )
    event, common = F.col("_event"), F.col("_all")
    found: dict[str, Column] = {
        each.name: F.coalesce(
            event[each.name], common[each.name], F.lit(_DEFAULTS.get(each.name))
        ).cast(type_of(each))
        for each in CARRIED
    }
    rows = rows.select(
        F.concat_ws("-", "_writer", "_sequence", event["_index"]).alias("event_id"),
        *[column.alias(name) for name, column in found.items()],
    )
    has_offset = F.col("offset").isNotNull()
    for name in _PLACE:
        origin = F.when(has_offset, F.coalesce(f"orig_{name}", name)).otherwise(
            F.col(f"orig_{name}")
        )
        rows = rows.withColumn(f"orig_{name}", origin)
    place = F.concat_ws("/", *[f"orig_{name}" for name in _PLACE])
    rows = rows.withColumn(
        "record_id", F.coalesce("record_id", F.when(has_offset, place))
    ).withColumn("root_id", F.coalesce("root_id", "record_id"))
    time = F.timestamp_micros("time_us")
    bucket = F.pmod(F.crc32(F.coalesce("root_id", F.lit("")).cast("binary")), F.lit(BUCKETS))
    return rows.withColumn("day", time.cast("date")).withColumn("bucket", bucket.cast("int"))[
        [each.name for each in TRACE_EVENTS]
    ]


def _values(field: Field) -> Column:
    """Return the values of a field for each event of a batch, null where it is no column."""
    column = F.col("batch")["columns"][field.name]
    values, counts = column["v"], column["n"]
    runs = F.arrays_zip(values.alias("v"), counts.alias("n"))
    repeated = F.flatten(
        F.transform(runs, lambda run: F.array_repeat(run["v"], run["n"].cast("int")))
    )
    if field.kind is int:
        ascending = F.flatten(
            F.transform(
                runs,
                lambda run: F.when(
                    run["n"] > 0, F.sequence(run["v"], run["v"] + run["n"] - 1)
                ).otherwise(_nothing(field)),
            )
        )
        repeated = F.when(column["up"], ascending).otherwise(repeated)
    return F.when(counts.isNull(), values).otherwise(repeated)


def _length(column: Column) -> Column:
    """Return for how many events a column stands, null where that cannot be told."""
    values, counts = column["v"], column["n"]
    ends = F.aggregate(counts, F.lit(0).cast("long"), lambda total, n: total + n)
    sane = (F.size(counts) == F.size(values)) & ~F.exists(counts, lambda n: n.isNull() | (n < 0))
    return F.when(counts.isNull(), F.size(values)).when(sane, ends)


def _nothing(field: Field) -> Column:
    return F.array().cast(T.ArrayType(type_of(field)))


def _times_lie_near() -> Column:
    """Tell whether a batch's times lie near the time of its Kafka record; null without either."""
    batch = F.col("batch")
    times = F.coalesce(batch["columns"]["time_us"]["v"], F.array(batch["all"]["time_us"]))
    written = F.unix_micros("timestamp")
    return (F.array_min(times) > written - BEHIND_DAYS * _DAY_US) & (
        F.array_max(times) < written + AHEAD_DAYS * _DAY_US
    )
