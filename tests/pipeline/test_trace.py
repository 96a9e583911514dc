"""Spark takes batches of events apart as the model does, and keeps what it cannot."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs

from window_consumer.spark import tables
from window_consumer.trace.event import TraceEvent
from window_consumer.trace.event_batch import Column, KeyColumn, OffsetColumn, decoded, encoded
from window_consumer.trace.spark import table as trace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOW_US = int(NOW.timestamp() * 1e6)


def records(spark: SparkSession, *values: bytes) -> DataFrame:
    """Return values as Spark's Kafka source would."""
    rows = [(value, "wc.trace", 0, offset, NOW) for offset, value in enumerate(values)]
    schema = "value binary, topic string, partition int, offset long, timestamp timestamp"
    return spark.createDataFrame(rows, schema)


def events(spark: SparkSession, *values: bytes) -> list[TraceEvent]:
    judged = trace.read(records(spark, *values))
    rows = trace.events(tables.readable(judged)).collect()
    names = [each.name for each in attrs.fields(TraceEvent)]
    return [TraceEvent(**{name: row[name] for name in names}) for row in rows]


def reasons(spark: SparkSession, *values: bytes) -> list[str | None]:
    return [row.reason for row in trace.read(records(spark, *values)).orderBy("offset").collect()]


def batch(sequence: int = 1, count: int = 3, **more: Any) -> bytes:
    """Return a batch of events of one partition."""
    common: dict[str, Any] = {
        "role": "consumer",
        "step": "processed",
        "topic": "orders",
        "partition": 2,
        "time_us": NOW_US,
        "dropped": 0,
        "sample": 1.0,
        **more,
    }
    places = OffsetColumn()
    places.add_run(17, count)
    return encoded("fbf8c89ffe854571", sequence, count, common, {"offset": places})


def test_events_are_those_that_the_model_reads(spark: SparkSession) -> None:
    column, ids, places = Column(), Column(), OffsetColumn()
    column.add("retry", 2)
    column.add("ok", 1)
    column.add("FATAL", 1)
    ids.extend(["a", None, "c", None])
    places.add([5, 6, 9, 11])
    keys = KeyColumn.of([b"k1", None, b"\xff\xfe", b'with "quotes" and \\'], repr)
    many = encoded(
        "00ff",
        7,
        4,
        {
            "role": "consumer",
            "step": "failed",
            "topic": "orders",
            "partition": 0,
            "time_us": NOW_US,
            "tags": "ünïcode,x",
            "sample": 0.25,
        },
        {"status": column, "record_id": ids, "offset": places, "key": keys},
    )
    unsent = encoded(
        "00ff",
        8,
        1,
        {"role": "producer", "step": "send_failed", "topic": "o", "time_us": NOW_US},
        {},
    )
    values = [batch(), many, unsent, batch(2, 1, orig_topic="first", orig_offset=3)]
    assert events(spark, *values) == [event for value in values for event in decoded(value)]


BROKEN = {
    b"": "malformed",
    b"no json": "malformed",
    b"[1, 2]": "malformed",
    b"{}": "malformed",
    batch()[:-20]: "malformed",
    b'{"format":2,"anything":"else"}': "format 2",
    batch(partition="two"): "malformed",
    batch().replace(b'"count":3', b'"count":4'): "columns of another length",
    batch().replace(b'"count":3', b'"count":-3'): "malformed",
    batch().replace(b'"count":3', b'"count":9000000000'): "malformed",
    batch().replace(b'"n":[3]', b'"n":[9000000000]'): "columns of another length",
    batch().replace(b'"n":[3]', b'"n":[-9223372036854775808]'): "columns of another length",
    batch().replace(b'"n":[3]', b'"n":[-3]'): "columns of another length",
    batch().replace(b'"n":[3]', b'"n":[1,2]'): "columns of another length",
    batch().replace(
        b'"v":[17],"n":[3]', b'"v":[17,18],"n":[9223372036854775807,1]'
    ): "columns of another length",
    batch().replace(b'"v":[17]', b'"v":[9223372036854775807]'): "columns of another length",
    batch().replace(b'"v":[17]', b'"v":[]'): "columns of another length",
    batch().replace(b'"v":[17]', b'"v":17'): "malformed",
    batch(role=None): "events without what they need",
    batch(time_us=NOW_US + 30 * 86_400_000_000): "skewed clock",
    batch(time_us=12): "skewed clock",
}


def test_what_cannot_be_read_is_kept_with_a_reason(spark: SparkSession) -> None:
    """... and does no harm to what comes with it."""
    judged = trace.read(records(spark, *BROKEN, batch()))
    kept = tables.quarantined(judged, "trace").orderBy("offset").collect()
    assert [(row.offset, row.reason, bytes(row.value)) for row in kept] == [
        (offset, reason, value) for offset, (value, reason) in enumerate(BROKEN.items())
    ]
    assert trace.events(tables.readable(judged)).count() == 3


def test_fields_that_are_not_known_do_no_harm(spark: SparkSession) -> None:
    later = json.loads(batch())
    later["all"]["mood"] = "fine"
    later["columns"]["colour"] = {"v": ["red"], "n": [3]}
    assert reasons(spark, json.dumps(later).encode()) == [None]
    assert len(events(spark, json.dumps(later).encode())) == 3


def test_a_value_of_a_megabyte_is_read(spark: SparkSession) -> None:
    assert len(events(spark, batch(count=1, tags="x" * 1_000_000))) == 1
