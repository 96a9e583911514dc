"""Turns the records of the trace topic into a table of events: pure, DataFrame to DataFrame.

No Python function runs per record: Spark's own functions take the batches apart.
"""

from __future__ import annotations

from typing import Final

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.spark.plan import BUCKETS
from window_consumer.spark.tables import CORRUPT, utc_day
from window_consumer.trace.event import EventField, TraceEvent
from window_consumer.trace.event_batch import FORMAT
from window_consumer.trace.spark.schema import CARRIED, TRACE_BATCH, TRACE_EVENTS, type_of

MOST_EVENTS: Final = 1_000_000
"""The events of one batch: writers have about 10,000 at most. A larger count means a broken
batch."""

AHEAD_DAYS: Final = 1
"""An event this much later than its Kafka record was written by a wrong clock."""

BEHIND_DAYS: Final = 366
"""So was an event this much earlier. A spool may wait long before it is shipped."""

_DEFAULTS: Final = {
    each.name: each.default
    for each in attrs.fields(TraceEvent)
    if each.default is not attrs.NOTHING
}
_NEEDED: Final = [each for each in CARRIED if each.name not in _DEFAULTS]
_DAY_US: Final = 86_400_000_000
_PLACE: Final = ("topic", "partition", "offset")


def read(records: DataFrame) -> DataFrame:
    """Return records of the trace topic with ``batch``, and ``reason`` if that is invalid.

    Takes the columns of Spark's Kafka source (``value``, ``timestamp`` and others, which stay).
    ``batch`` is a ``schema.TRACE_BATCH``, ``columns`` its columns as one array of events.
    """
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = records.withColumn("batch", F.from_json(text, TRACE_BATCH, options))
    batch = F.col("batch")
    fits = " AND ".join(_fits(each) for each in CARRIED)
    whole = " AND ".join(_is_whole(each) for each in _NEEDED)
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
        .when(~F.expr(fits), "columns of another length")
        .when(~F.expr(whole), "events without what they need")
        .when(~lies_within, "skewed clock")
    )
    return parsed.withColumn("reason", reason)


def events(readable: DataFrame) -> DataFrame:
    """Return the events of ``read``'s batches without a reason: ``TRACE_EVENTS``.

    One row per event, with the fields of ``trace.event.TraceEvent``, and with ``day`` and
    ``bucket``, which partition the table. Omitted values that follow from others are filled in.
    """
    index = F.expr("sequence(0, CAST(batch.count AS INT) - 1)").alias("_index")
    columns = [F.expr(_values(each)).alias(each.name) for each in CARRIED]
    rows = readable.select(
        F.expr("batch.writer").alias("_writer"),
        F.expr("batch.sequence").alias("_sequence"),
        F.expr("batch.all").alias("_all"),
        F.explode(F.arrays_zip(index, *columns)).alias("_event"),
    )
    rows = rows.selectExpr(
        "concat_ws('-', _writer, _sequence, _event._index) AS event_id",
        *[f"{_value(each)} AS `{each.name}`" for each in CARRIED],
    )
    rows = rows.withColumns({f"orig_{name}": F.expr(_origin(name)) for name in _PLACE})
    place = f"concat_ws('/', {', '.join(f'orig_{name}' for name in _PLACE)})"
    record_id = f"coalesce(record_id, CASE WHEN {_HAS_OFFSET} THEN {place} END)"
    rows = rows.withColumn("record_id", F.expr(record_id))
    root_id = "coalesce(root_id, record_id)"
    bucket = F.pmod(F.crc32(F.expr(f"CAST(coalesce({root_id}, '') AS BINARY)")), F.lit(BUCKETS))
    return rows.withColumns(
        {
            "root_id": F.expr(root_id),
            "day": utc_day("time_us", 1_000_000),
            "bucket": bucket.cast("int"),
        }
    )[[each.name for each in TRACE_EVENTS]]


# ---- expressions for one field, in SQL text: PySpark makes a dozen Java calls for a text, but some
# 6,000 for the same with Column objects, which takes two seconds per batch


def _column(field: EventField) -> str:
    return f"batch.columns.`{field.name}`"


def _fits(field: EventField) -> str:
    """Return whether a field is not a column, or has a value for each event."""
    column = _column(field)
    values, counts = f"{column}.v", f"{column}.n"
    # A sum that exceeds a long is null here; a plain sum would fail.
    ends = f"aggregate({counts}, CAST(0 AS BIGINT), (total, n) -> try_add(total, n))"
    length = (
        f"CASE WHEN {counts} IS NULL THEN size({values})"
        f" WHEN size({counts}) = size({values})"
        f" AND NOT exists({counts}, n -> n IS NULL OR n < 0) THEN {ends} END"
    )
    fits = f"coalesce({length} = batch.count, false)"
    if field.kind is int:
        lasts = f"zip_with({values}, {counts}, (v, n) -> try_add(v, n - 1))"
        fits += f" AND NOT coalesce({column}.up AND exists({lasts}, v -> v IS NULL), false)"
    return f"({column} IS NULL OR ({fits}))"


def _is_whole(field: EventField) -> str:
    """Return whether each event has a value for a field."""
    values = f"{_column(field)}.v"
    each_has_one = f"{values} IS NOT NULL AND NOT exists({values}, v -> v IS NULL)"
    return f"({each_has_one} OR batch.all.`{field.name}` IS NOT NULL)"


def _values(field: EventField) -> str:
    """Return the values of a field for each event of a batch, empty if it is not a column."""
    column = _column(field)
    nothing = f"CAST(array() AS ARRAY<{type_of(field).simpleString()}>)"
    values, counts = f"{column}.v", f"{column}.n"
    repeated = f"zip_with({values}, {counts}, (v, n) -> array_repeat(v, CAST(n AS INT)))"
    if field.kind is int:
        run = f"CASE WHEN n > 0 THEN sequence(v, v + (n - 1)) ELSE {nothing} END"
        ascending = f"zip_with({values}, {counts}, (v, n) -> {run})"
        repeated = f"CASE WHEN {column}.up THEN {ascending} ELSE {repeated} END"
    found = f"CASE WHEN {counts} IS NULL THEN {values} ELSE flatten({repeated}) END"
    return f"coalesce({found}, {nothing})"


def _value(field: EventField) -> str:
    """Return the value of a field of one event, which may be shared by the batch."""
    found = [f"_event.`{field.name}`", f"_all.`{field.name}`"]
    if (default := _DEFAULTS.get(field.name)) is not None:
        found.append(repr(default))
    return f"CAST(coalesce({', '.join(found)}) AS {type_of(field).simpleString()})"


_HAS_OFFSET: Final = "offset IS NOT NULL"


def _origin(name: str) -> str:
    """Return a part of the first position: the current one unless the event names another."""
    return f"CASE WHEN {_HAS_OFFSET} THEN coalesce(orig_{name}, {name}) ELSE orig_{name} END"


def _times_lie_near() -> Column:
    """Return whether a batch's times are near its Kafka record's time; null if one is missing."""
    batch = F.col("batch")
    times = F.coalesce(batch["columns"]["time_us"]["v"], F.array(batch["all"]["time_us"]))
    written = F.unix_micros("timestamp")
    return (F.array_min(times) > written - BEHIND_DAYS * _DAY_US) & (
        F.array_max(times) < written + AHEAD_DAYS * _DAY_US
    )
